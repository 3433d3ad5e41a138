/**
 * What the simulated service itself has: rows that handlers write, and a view that follows a stream.
 */
import { sql, type Statement } from '../../../src/postgres/query/sql.ts'
import { name } from '../../../src/postgres/query/sql.ts'
import { upsertNewer } from '../../../src/projection/versioned-upsert.sql.ts'
import type { FakeStore } from './fake-store.ts'
import { Table } from './mvcc.ts'

export interface Effect {
  readonly eventId: string
  readonly aggregate: string
  readonly version: number
}

export interface ViewRow {
  readonly id: string
  readonly version: number
  readonly title: string | null
  readonly deleted: boolean
}

/** Rules that a test may break, to see that it is missed. */
export type ViewRule = 'an old version changes nothing' | 'a tombstone stays'

export interface EffectStore {
  readonly effect: Table<Effect>
  readonly view: Table<ViewRow>
}

export function effectStore(): EffectStore {
  return {
    // Nothing keeps the same effect from being written twice.
    effect: new Table('effect'),
    view: new Table('video_view', [{ name: 'video_view_pkey', key: ({ id }) => id }]),
  }
}

/** The statement of the handlers. */
export function insertEffect({ eventId, aggregate, version }: Effect): Statement {
  return sql`insert into effect (event_id, aggregate, version) values (${eventId}, ${aggregate}, ${version})`
}

export const viewTable = 'video_view'

export function defineEffects(store: FakeStore, data: EffectStore, broken: ReadonlySet<ViewRule>): void {
  store.define(
    'insertEffect',
    insertEffect({ eventId: '', aggregate: '', version: 0 }),
    async (context, [eventId, aggregate, version]) => {
      await context.insert(data.effect, { eventId: String(eventId), aggregate: String(aggregate), version: Number(version) })
      return []
    },
  )
  for (const columns of [['deleted_at'], ['deleted_at', 'title']]) {
    const shape = { table: name(viewTable), keyColumns: ['video_id'], versionColumn: 'version', columns }
    store.define('upsertNewer', upsertNewer(shape, ''), async (context, [records]) => {
      const incoming = JSON.parse(String(records)) as {
        video_id: string
        version: string
        deleted_at: string | null
        title?: string
      }[]
      for (const each of incoming.toSorted((a, b) => (a.video_id < b.video_id ? -1 : 1))) {
        const deleted = each.deleted_at !== null
        const row = { id: each.video_id, version: Number(each.version), title: each.title ?? null, deleted }
        const isNewer = (known: ViewRow): boolean => known.version < row.version || broken.has('an old version changes nothing')
        const written = await context.insert(data.view, row, (known) =>
          isNewer(known) ? { ...row, title: each.title === undefined ? known.title : row.title } : undefined,
        )
        if (!deleted || written === undefined || !broken.has('a tombstone stays')) continue
        await context.next()
        await context.remove(
          data.view,
          context.see(data.view, ({ id }) => id === row.id),
        )
      }
      return []
    })
  }
}
