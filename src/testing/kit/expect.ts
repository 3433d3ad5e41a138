/**
 * Assertions on what was added, published and applied. They throw node:assert's AssertionError, which Vitest, Jest and node:test
 * all show with its difference, and return what they found, so that a test can go on from there.
 */
import { AssertionError } from 'node:assert'
import { isDeepStrictEqual } from 'node:util'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import type { EventData, EventKind } from '../../core/event/event.ts'
import { readData, type EventType } from '../../core/event/stream.ts'
import type { Version } from '../../core/event/version.ts'
import { outboxTables } from '../../outbox/tables/outbox.sql.ts'
import { rows, type Queryable } from '../../postgres/query/database.ts'
import type { JudgedConsumer } from '../history/read-history.ts'
import { scopeOf } from './drain.ts'
import { readEvents, readFates, type Fate } from './test-kit.sql.ts'

export interface EventExpectation<Data> {
  /** @default any */
  readonly aggregateId?: string
  /** What the data must contain, or a question that it must answer with yes. @default anything */
  readonly data?: PartOf<Data> | ((data: Data) => boolean)
  /** How many of them, exactly; 0 for none. @default at least one */
  readonly times?: number
  /** The schema of the outbox. @default 'waybill' */
  readonly schema?: string
}

/** Some of the properties, at any depth. */
export type PartOf<Data> = Data extends readonly unknown[]
  ? Data
  : Data extends object
    ? { readonly [Key in keyof Data]?: PartOf<Data[Key]> }
    : Data

/** An event as it stands in the outbox. */
export interface FoundEvent<Data = unknown> {
  readonly id: string
  readonly type: string
  readonly aggregateId: string
  readonly version: Version
  readonly headers: Readonly<Record<string, string>>
  readonly data: Data
  /** PENDING, INFLIGHT, RELEASED, HELD, PARKED or PUBLISHED. */
  readonly state: string
}

type AnyType = EventType<EventKind, never, unknown>

/** The events of this type that were committed, published or not. */
export async function expectAdded<Type extends AnyType>(
  db: Queryable,
  type: Type,
  expected: EventExpectation<EventData<Type>> = {},
): Promise<readonly FoundEvent<EventData<Type>>[]> {
  const all = await eventsOf(db, type, expected.schema)
  return assertFound(all, { type, expected, verb: 'added', isCounted: () => true })
}

/** The events of this type that the broker has confirmed. */
export async function expectPublished<Type extends AnyType>(
  db: Queryable,
  type: Type,
  expected: EventExpectation<EventData<Type>> = {},
): Promise<readonly FoundEvent<EventData<Type>>[]> {
  const all = await eventsOf(db, type, expected.schema)
  return assertFound(all, { type, expected, verb: 'published', isCounted: ({ state }) => state === 'PUBLISHED' })
}

/** The consumer has committed the effect of these events: what `outbox.add` or another assertion returned. */
export async function expectApplied(
  consumer: JudgedConsumer,
  events: { readonly id: string } | readonly { readonly id: string }[],
): Promise<void> {
  const fates = await fatesOf(consumer, events)
  const missing = fates.filter(({ is_applied: isApplied }) => !isApplied)
  if (missing.length === 0) return
  const lines = missing.map((fate) => `event ${fate.id} ${fateText(fate)}`)
  throw failure('expectApplied', `Consumer ${consumer.settings.name} has not applied:\n${lines.join('\n')}`, {
    actual: fates.filter(({ is_applied: isApplied }) => isApplied).map(({ id }) => id),
    expected: fates.map(({ id }) => id),
  })
}

/** The consumer has not committed the effect of any of these events. */
export async function expectNotApplied(
  consumer: JudgedConsumer,
  events: { readonly id: string } | readonly { readonly id: string }[],
): Promise<void> {
  const applied = (await fatesOf(consumer, events)).filter(({ is_applied: isApplied }) => isApplied).map(({ id }) => id)
  if (applied.length === 0) return
  throw failure('expectNotApplied', `Consumer ${consumer.settings.name} has applied ${applied.join(', ')}.`, {
    actual: applied,
    expected: [],
  })
}

async function eventsOf<Type extends AnyType>(
  db: Queryable,
  type: Type,
  schema: string = defaults.schema,
): Promise<readonly FoundEvent<EventData<Type>>[]> {
  const { aggregateType } = type.stream
  const found = await rows(db, readEvents(outboxTables(schema), { aggregateType, name: type.name }))
  return await Promise.all(
    found.map(async (row) => ({
      id: row.id,
      type: type.name,
      aggregateId: row.aggregate_id,
      version: BigInt(row.version),
      headers: JSON.parse(row.headers) as Record<string, string>,
      data: (await readData(type, row.payload, row.schema_version, row.aggregate_id)) as EventData<Type>,
      state: row.state,
    })),
  )
}

interface Wanted<Data> {
  readonly type: AnyType
  readonly expected: EventExpectation<Data>
  readonly verb: 'added' | 'published'
  readonly isCounted: (event: FoundEvent<Data>) => boolean
}

function assertFound<Data>(
  all: readonly FoundEvent<Data>[],
  { type, expected, verb, isCounted }: Wanted<Data>,
): readonly FoundEvent<Data>[] {
  const { aggregateId, data, times } = expected
  const found = all.filter(
    (event) => isCounted(event) && (aggregateId === undefined || event.aggregateId === aggregateId) && hasData(event.data, data),
  )
  if (times === undefined ? found.length > 0 : found.length === times) return found
  const wanted = `${times ?? 'at least one'} ${type.name}${aggregateId === undefined ? '' : ` of ${aggregateId}`}`
  const message = `Expected ${wanted} to be ${verb}${data === undefined ? '' : ' with the data given'}, found ${found.length}. ${summaryOf(all, type)}`
  throw failure(verb === 'added' ? 'expectAdded' : 'expectPublished', message, {
    actual: all.map((event) => ({ aggregateId: event.aggregateId, data: event.data, state: event.state })),
    expected: { ...(aggregateId === undefined ? {} : { aggregateId }), ...(data === undefined ? {} : { data }) },
  })
}

function summaryOf(all: readonly FoundEvent[], type: AnyType): string {
  if (all.length === 0) return `The outbox has no ${type.name} at all.`
  const lines = all.slice(0, 10).map(({ aggregateId, version, state }) => `${aggregateId} v${version} ${state}`)
  return `The outbox has ${all.length} of this type: ${lines.join(', ')}${all.length > 10 ? ' …' : ''}.`
}

function hasData<Data>(data: Data, wanted: EventExpectation<Data>['data']): boolean {
  if (wanted === undefined) return true
  return typeof wanted === 'function' ? (wanted as (given: Data) => boolean)(data) : contains(data, wanted)
}

/** Every property that is wanted is there, at any depth; lists are equal as a whole. */
function contains(actual: unknown, wanted: unknown): boolean {
  const isPlain = (value: unknown): value is Record<string, unknown> =>
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  if (!isPlain(wanted) || !isPlain(actual)) return isDeepStrictEqual(actual, wanted)
  return Object.entries(wanted).every(([key, value]) => key in actual && contains(actual[key], value))
}

async function fatesOf(
  consumer: JudgedConsumer,
  events: { readonly id: string } | readonly { readonly id: string }[],
): Promise<readonly Fate[]> {
  const { name, inbox } = consumer.settings
  if (!inbox) {
    const why = `consumer ${name} has no inbox (inbox: false), so nothing says which events it has applied`
    throw new WaybillError('INVALID_OPTION', `${why}: look at its rows, or verify its history.`)
  }
  const ids = [events].flat().map(({ id }) => id)
  return await rows(consumer.settings.db, readFates(await scopeOf(consumer), ids))
}

function fateText({ dead, stored }: Fate): string {
  if (dead !== null) return `was given up (${dead})`
  if (stored === 4) return 'waits for an earlier version, or behind a dead letter'
  return stored === null ? 'has not arrived, or a later state stands for it' : 'is stored and waits for its turn'
}

function failure(
  operator: string,
  message: string,
  difference: { readonly actual: unknown; readonly expected: unknown },
): AssertionError {
  return new AssertionError({ message, operator, ...difference })
}
