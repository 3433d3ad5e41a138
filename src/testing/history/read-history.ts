/**
 * A history out of the databases themselves, where nobody recorded one: what the outbox holds and has receipts for, what
 * consumers applied and gave up, and what owner and projections are at the end.
 *
 * Whoever reads it says that everything is over: it ends with a rest, with whatever is still waiting. Databases do not know in
 * which order the broker got the messages; for that, and for reads and commands, record them and let this add the rest.
 */
import type { ConsumerSettings } from '../../consumer/model/consumer-options.ts'
import { inboxTables, readConsumer, type Scope } from '../../consumer/tables/inbox.sql.ts'
import type { Routes } from '../../consumer/model/routes.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import type { EventKind } from '../../core/event/event.ts'
import type { EventType } from '../../core/event/stream.ts'
import { outboxTables, type OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { first, one, rows, type Queryable } from '../../postgres/query/database.ts'
import type { Projection } from '../../projection/projection.ts'
import { aggregateName, type HistoryEntry } from './entry.ts'
import { createHistory, type Recorder } from './history.ts'
import * as statements from './read-history.sql.ts'

export interface HistoryOwner {
  readonly db: Queryable
  /** The schema of its outbox. @default 'waybill' */
  readonly schema?: string
  /**
   * How it is known what was published: by the relays' receipts; by what is no longer in line, where they write none; or by the
   * broker's log, which you record yourself. @default 'receipts'
   */
  readonly log?: 'receipts' | 'dispatch' | 'recorded'
  /**
   * What its aggregates are, by type: a query that returns `id` and `value`, both text. Consumers answer with queries of the
   * same types. @default versions are compared instead
   */
  readonly states?: Readonly<Record<string, string>>
  /**
   * The ids of events that went to another broker: nobody has to have published or applied them. An aggregate whose last event
   * is one of them is compared only if all who read it have applied that. @default none
   */
  readonly elsewhere?: ReadonlySet<string>
}

/** What is asked of a consumer: any will do, whatever its driver. */
export interface JudgedConsumer {
  readonly settings: Pick<ConsumerSettings, 'schema' | 'name' | 'streams' | 'inbox'> & { readonly db: Queryable }
  readonly routes: () => Routes
}

export interface HistoryConsumer {
  readonly consumer: JudgedConsumer
  /**
   * A table in which each effect leaves a row, which shows doubled effects that an inbox cannot hold: a query that returns
   * `event`, and `aggregate` and `after` if it knows them, in the order of the commits. @default the inbox
   */
  readonly effects?: { readonly query: string; readonly of: readonly EventType<EventKind, never, unknown>[] }
  /** What its projections are, by type, as the owner's `states`. */
  readonly states?: Readonly<Record<string, string>>
}

export interface ReadHistoryOptions {
  /** Whoever writes events; several, if consumers emit into outboxes of their own. */
  readonly owner: HistoryOwner | readonly HistoryOwner[]
  readonly consumers?: readonly HistoryConsumer[]
  /** Whether events that consumers gave up, and nobody has seen to, are as it should be, or something that is left. @default 'expected' */
  readonly deadLetters?: 'expected' | 'left'
}

/** The whole history as a list. */
export async function readHistory(options: ReadHistoryOptions): Promise<readonly HistoryEntry[]> {
  const history = createHistory()
  await recordHistory(history, options)
  return history.entries
}

/** The same into a history or a checker, page by page. */
export async function recordHistory(
  into: Recorder,
  { owner, consumers = [], deadLetters = 'expected' }: ReadHistoryOptions,
): Promise<void> {
  const readers: Reader[] = []
  for (const source of consumers) readers.push(await openReader(source))
  const sides = [owner].flat().map((each) => ({ owner: each, tables: outboxTables(each.schema ?? defaults.schema), readers }))
  const unread = new Set<string>()
  for (const side of sides) for (const aggregate of await recordCommits(into, side)) unread.add(aggregate)
  for (const side of sides) await recordStates(without(unread, into), side)
  const left: Record<string, number> = {}
  for (const { owner: each, tables } of sides)
    for (const { state, count } of await rows(each.db, statements.countDispatch(tables))) {
      const what = `outbox rows (${dispatchStates[state] ?? state})`
      left[what] = (left[what] ?? 0) + count
    }
  const isElsewhere = (event: string): boolean => sides.some(({ owner: each }) => each.elsewhere?.has(event) ?? false)
  for (const reader of readers) {
    const { stored, dead } = await recordReader(into, reader)
    left[`stored messages of ${reader.name}`] = stored
    if (deadLetters === 'left') left[`dead letters of ${reader.name}`] = dead.filter((event) => !isElsewhere(event)).length
  }
  into.record({ op: 'rest', source: 'databases', left })
}

const dispatchStates = ['due', 'retry', 'held', 'parked']
const pageSize = 10_000

/** A consumer, and what it has applied. */
interface Reader extends HistoryConsumer {
  readonly name: string
  readonly scope: Scope
  /** In the order of the commits, where that is known. */
  readonly effectList: readonly AppliedEvent[]
  readonly applied: ReadonlySet<string>
}

async function openReader(source: HistoryConsumer): Promise<Reader> {
  const { db, schema, name } = source.consumer.settings
  const tables = inboxTables(schema)
  const generation = (await first(db, readConsumer({ tables, consumer: name })))?.generation ?? 1
  const scope: Scope = { tables, consumer: name, generation }
  const effectList = source.effects === undefined ? await inboxOf(db, scope) : await effectsOf(db, source.effects.query)
  return { ...source, name, scope, effectList, applied: new Set(effectList.map(({ event }) => event)) }
}

/** What a consumer still has in store, and the events that it gave up and nobody has seen to. */
interface Left {
  readonly stored: number
  readonly dead: readonly string[]
}

/** What a consumer reads, applied and gave up; returns what is left. */
async function recordReader(into: Recorder, { name, scope, effectList, ...reader }: Reader): Promise<Left> {
  const { db, streams, inbox } = reader.consumer.settings
  const common = { source: name, consumer: name, generation: scope.generation } as const
  const types = inbox || reader.effects !== undefined ? streams.map(({ aggregateType }) => aggregateType) : []
  into.record({ op: 'follow', ...common, types, projects: Object.keys(reader.states ?? {}) })
  for (const effect of effectList) into.record({ op: 'apply', ...common, ...effect })
  const givenUp = await rows(db, statements.readGivenUp(scope))
  for (const { event, why, is_dead: isDead } of givenUp) into.record({ op: 'excuse', ...common, event, why, isDead })
  const { count: stored } = await one(db, statements.countStored(scope))
  return { stored, dead: givenUp.filter((letter) => letter.is_dead).map(({ event }) => event) }
}

interface AppliedEvent {
  readonly event: string
  readonly aggregate?: string
  readonly after?: number
}

async function inboxOf(db: Queryable, scope: Scope): Promise<readonly AppliedEvent[]> {
  const applied: AppliedEvent[] = []
  for (let after = '00000000-0000-0000-0000-000000000000'; ; after = applied.at(-1)?.event ?? after) {
    const page = await rows(db, statements.readApplied(scope, { after, limit: pageSize }))
    for (const row of page) applied.push(row)
    if (page.length < pageSize) return applied
  }
}

async function effectsOf(db: Queryable, query: string): Promise<readonly AppliedEvent[]> {
  const found = (await db.query(query)).rows as readonly { event: string; aggregate?: string; after?: string | number }[]
  return found.map(({ event, aggregate, after }) => ({
    event,
    ...(aggregate === undefined ? {} : { aggregate }),
    ...(after === undefined ? {} : { after: Number(after) }),
  }))
}

interface OwnerSide {
  readonly owner: HistoryOwner
  readonly tables: OutboxTables
  readonly readers: readonly Reader[]
}

/** Returns the aggregates whose last event went elsewhere, and not to all who read it. */
async function recordCommits(into: Recorder, { owner, tables, readers }: OwnerSide): Promise<ReadonlySet<string>> {
  const unread = new Set<string>()
  let after = { aggregate_type: '', aggregate_id: '', version: '0' }
  const excusing = readers.map((reader) => excuseSuperseded(into, reader))
  for (;;) {
    const { log = 'receipts' } = owner
    const options = { limit: pageSize, receipts: log === 'receipts' }
    const page = await rows(owner.db, statements.readCommitted(tables, after, options))
    for (const row of page) {
      const aggregate = aggregateName(row.aggregate_type, row.aggregate_id)
      const event = { event: row.id, aggregate, version: Number(row.version) }
      into.record({ op: 'commit', source: 'owner', ...event })
      if (row.is_published && log !== 'recorded')
        into.record({ op: 'log', source: log, topic: row.topic, isUnordered: true, ...event })
      for (const excuse of excusing) excuse(row)
      const isElsewhere = owner.elsewhere?.has(row.id) ?? false
      if (isElsewhere) into.record({ op: 'excuse', source: 'owner', event: row.id, why: 'it went to another broker' })
      if (isElsewhere && readers.some((reader) => reads(reader, row) && !reader.applied.has(row.id))) unread.add(aggregate)
      else unread.delete(aggregate)
    }
    if (page.length < pageSize) return unread
    after = page.at(-1) ?? after
  }
}

/** Leaves out the states of these aggregates, on both sides. */
function without(aggregates: ReadonlySet<string>, into: Recorder): Recorder {
  return {
    record: (entry) => {
      if (entry.op !== 'state' || !aggregates.has(entry.aggregate)) into.record(entry)
    },
  }
}

function reads({ consumer }: Reader, row: statements.CommittedRow): boolean {
  return consumer.settings.streams.some(({ aggregateType }) => aggregateType === row.aggregate_type)
}

/**
 * Rows come by aggregate and version. A consumer that takes events in order, or that has no inbox, may pass over what a later
 * state stands for, and a rebuild begins with what is retained; others apply every event. Where effects are rows of a table,
 * only some types of event leave one.
 */
function excuseSuperseded(into: Recorder, reader: Reader): (row: statements.CommittedRow) => void {
  const { settings } = reader.consumer
  const leavesRow = reader.effects === undefined ? undefined : new Set(reader.effects.of.map(nameOf))
  const { sequentialTypes } = reader.consumer.routes()
  const mayPass = (type: string): boolean => !settings.inbox || reader.scope.generation > 1 || sequentialTypes.includes(type)
  let aggregate = ''
  let passed: string[] = []
  const excuse = (event: string, why: string): void =>
    into.record({ op: 'excuse', source: reader.name, consumer: reader.name, generation: reader.scope.generation, event, why })
  return (row) => {
    const stream = settings.streams.find(({ aggregateType }) => aggregateType === row.aggregate_type)
    const type = stream?.events[row.event_type]
    if (type === undefined) return
    const name = aggregateName(row.aggregate_type, row.aggregate_id)
    if (name !== aggregate) passed = []
    aggregate = name
    if (leavesRow !== undefined && !leavesRow.has(nameOf(type))) return excuse(row.id, 'its type leaves no row')
    if (!reader.applied.has(row.id)) return void (mayPass(row.aggregate_type) && passed.push(row.id))
    if (type.kind !== 'delta') for (const event of passed.splice(0)) excuse(event, `v${row.version} stands for it`)
  }
}

function nameOf({ stream, name }: EventType<EventKind, never, unknown>): string {
  return aggregateName(stream.aggregateType, name)
}

/** A projection that has no state to compare with the owner's would go unlooked at. */
function refuseUncompared({ owner, readers }: OwnerSide): void {
  for (const { name, consumer, states = {} } of readers)
    for (const { aggregateType } of consumer.routes().projections.map(({ stream }) => stream))
      if (Object.hasOwn(owner.states ?? {}, aggregateType) && !Object.hasOwn(states, aggregateType))
        throw new WaybillError(
          'INVALID_OPTION',
          `states: the owner gives those of ${aggregateType}, and ${name}, which projects it, does not. Give both, or none: then versions are compared.`,
        )
}

async function recordStates(into: Recorder, side: OwnerSide): Promise<void> {
  const { owner, tables, readers } = side
  refuseUncompared(side)
  const versioned = new Set(
    readers.flatMap(({ consumer }) => consumer.routes().projections.map(({ stream }) => stream.aggregateType)),
  )
  for (const type of Object.keys(owner.states ?? {})) versioned.delete(type)
  for (const [type, query] of Object.entries(owner.states ?? {}))
    for (const { id, value } of await statesOf(owner.db, query))
      into.record({ op: 'state', source: 'owner', aggregate: aggregateName(type, id), value })
  const ids = new Map<string, string[]>()
  for (const type of versioned) {
    const found = await rows(owner.db, statements.readVersions(tables, type))
    ids.set(
      type,
      found.map(({ id }) => id),
    )
    for (const { id, version } of found)
      into.record({ op: 'state', source: 'owner', aggregate: aggregateName(type, id), value: `v${version}` })
  }
  for (const reader of readers) await recordProjections(into, reader, ids)
}

async function recordProjections(into: Recorder, reader: Reader, ids: ReadonlyMap<string, readonly string[]>): Promise<void> {
  const { db } = reader.consumer.settings
  const put = (consumer: string, aggregate: string, value: string | null): void =>
    into.record({ op: 'state', source: reader.name, consumer, aggregate, value })
  for (const [type, query] of Object.entries(reader.states ?? {}))
    for (const { id, value } of await statesOf(db, query)) put(reader.name, aggregateName(type, id), value)
  const { projections } = reader.consumer.routes()
  for (const projection of projections) {
    const type = projection.stream.aggregateType
    const owned = ids.get(type)
    if (owned === undefined) continue
    const isOnly = projections.filter(({ stream }) => stream === projection.stream).length === 1
    const consumer = isOnly ? reader.name : `${reader.name} (${projection.tableText})`
    for (const [id, version] of await projectedVersions(db, projection, owned)) put(consumer, aggregateName(type, id), version)
  }
}

/** The versions of a projection's rows (`v3`) by the ids of their aggregates; of a row that belongs to none, by its key. */
export async function projectedVersions(
  db: Queryable,
  projection: Projection,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string | null>> {
  const byKey = new Map(
    (await rows(db, statements.readProjected(projection))).map(({ key, version }) => [
      keyText(JSON.parse(key) as string[]),
      version,
    ]),
  )
  const versions = new Map<string, string | null>()
  for (const id of ids) {
    const key = keyText(projection.keyOf(id))
    const version = byKey.get(key)
    versions.set(id, version === undefined ? null : `v${version}`)
    byKey.delete(key)
  }
  for (const [key, version] of byKey) versions.set(key, `v${version}`)
  return versions
}

function keyText(parts: readonly string[]): string {
  return parts.length === 1 ? (parts[0] ?? '') : JSON.stringify(parts)
}

async function statesOf(db: Queryable, query: string): Promise<readonly { id: string; value: string | null }[]> {
  return (await db.query(query)).rows as readonly { id: string; value: string | null }[]
}
