/**
 * Finds deltas that wait for a version that never comes, and brings the missing ones from the owner's outbox.
 *
 * The events are stored in the consumer's line as if they had been received, with their own ids: one that comes after all
 * is a duplicate. One that an operator skipped is brought as its marker. The consumer applies them in turn within its `pollMs`.
 * What the owner no longer keeps is named; a state event of the aggregate, which stands for everything before it, closes such a gap.
 */
import { inboxTables, readConsumer, storeWaiting, type Scope } from '../../consumer/tables/inbox.sql.ts'
import { isForeign, readEvent } from '../../consumer/model/received-event.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import { toMessage } from '../../outbox/relay/message.ts'
import { execute, first, one, rows, type Database, type Queryable } from '../../postgres/query/database.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { selectGaps, selectOwned, type GapRow, type OwnedEventRow } from './repair-gap.sql.ts'

export interface GapOptions {
  readonly db: Database
  readonly schema: string
  readonly consumer: string
  /** Only gaps whose messages have waited for this long. @default 60_000 */
  readonly olderThanMs?: number | undefined
}

/** Messages of an aggregate wait behind a version that has not come. */
export interface Gap {
  readonly aggregateType: string
  readonly aggregateId: string
  /** The last version that was applied. */
  readonly position: string
  /** The first one that waits. */
  readonly next: string
  readonly waiting: number
  readonly ageMs: number
}

export interface RepairOptions extends GapOptions {
  /** The database and schema whose outbox the events were written to. */
  readonly owner: { readonly db: Queryable; readonly schema: string }
  /** Who does it, for the audit log. */
  readonly actor: string
}

export interface RepairedGap extends Gap {
  /** Events that were brought. */
  readonly brought: number
  /** Versions that the owner does not have any more, before the last one that was brought if a call again brings more. */
  readonly missing: number
}

/** Of both: whoever looks first may pass on what the repair needs. */
const optionNames = ['db', 'schema', 'consumer', 'olderThanMs', 'owner', 'actor']
const gapLimit = 1_000
const eventLimit = 1_000

/** The gaps of a consumer, oldest first. */
export async function listGaps(options: GapOptions): Promise<readonly Gap[]> {
  refuseUnknown('listGaps', options, optionNames)
  return (await findGaps(await scopeOf(options), options)).map(toGap)
}

/** Brings what is missing, of a thousand gaps and a thousand events each at most; call it again if there were more. */
export async function repairGap(options: RepairOptions): Promise<readonly RepairedGap[]> {
  refuseUnknown('repairGap', options, optionNames)
  const { db, owner, schema, consumer, actor } = options
  const scope = await scopeOf(options)
  const repaired: RepairedGap[] = []
  for (const gap of await findGaps(scope, options)) {
    const owned = await rows(owner.db, selectOwned(owner.schema, gap, eventLimit))
    const items = owned.map((row) => toItem(gap, row))
    await transaction(db, async (tx) => {
      if (items.length === 0) return
      await execute(tx, storeWaiting(scope, items))
      const details = { consumer, ...toGap(gap), events: items.map(({ event }) => event.id) }
      await one(tx, insertAudit(schema, { actor, action: 'consumer.repair-gap', details }))
    })
    repaired.push({ ...toGap(gap), brought: items.length, missing: countMissing(gap, owned) })
  }
  return repaired
}

/** Up to the last version that was brought if there may be more behind it; otherwise up to the first that waits. */
function countMissing({ position, next }: GapRow, owned: readonly OwnedEventRow[]): number {
  const last = owned.length < eventLimit ? undefined : owned.at(-1)?.version
  const end = last === undefined ? BigInt(next) - 1n : BigInt(last)
  return Number(end - BigInt(position)) - owned.length
}

async function scopeOf({ db, schema, consumer }: GapOptions): Promise<Scope> {
  const tables = inboxTables(schema)
  const found = await first(db, readConsumer({ tables, consumer }))
  if (found === undefined)
    throw new WaybillError('NOT_FOUND', `There is no consumer ${consumer} in schema ${schema}: it has never run here.`)
  return { tables, consumer, generation: found.generation }
}

async function findGaps(
  scope: Scope,
  { db, olderThanMs = defaults.consumer.gapAlertMs }: GapOptions,
): Promise<readonly GapRow[]> {
  return await rows(db, selectGaps(scope, { olderThanMs, limit: gapLimit }))
}

/** The event as the broker would have delivered it. */
function toItem(gap: GapRow, row: OwnedEventRow): Parameters<typeof storeWaiting>[1][number] {
  const outgoing = toMessage(
    { ...notDispatched, ...row, aggregate_type: gap.aggregate_type, aggregate_id: gap.aggregate_id },
    'aggregate',
  )
  const message = { ...outgoing, messageId: `outbox ${row.event_id}`, publishedAtMs: Date.parse(row.occurred_at) }
  const event = readEvent(message)
  if (isForeign(event)) throw new WaybillError('CORRUPT', `Event ${row.event_id} of the owner's outbox: ${event.problem}`)
  return { event, message }
}

/** What a row of the relay has beside the event. */
const notDispatched = {
  lane: 0,
  seq: '0',
  key: '0',
  state: 0,
  publish_attempts: 0,
  blocked: false,
  wait_ms: 0,
} as const

function toGap(row: GapRow): Gap {
  return {
    aggregateType: row.aggregate_type,
    aggregateId: row.aggregate_id,
    position: row.position,
    next: row.next,
    waiting: row.waiting,
    ageMs: Number(row.age_ms),
  }
}
