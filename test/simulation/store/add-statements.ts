/**
 * The way into the outbox: `add_event` and `add_events`, statement by statement.
 */
import { addEvent, addEvents, type EncodedEvent, type OutboxTables } from '../../../src/outbox/tables/outbox.sql.ts'
import { DatabaseFailure } from './database-failure.ts'
import type { FakeStore } from './fake-store.ts'
import type { OutboxEvent, OutboxStore } from './outbox-tables.ts'
import { bytes, keyOf, laneOf, numbers, parseArray, texts } from './sql-text.ts'
import type { StatementContext } from './statement-context.ts'

type NewEvent = Omit<OutboxEvent, 'version' | 'occurredAt'> & { readonly notBefore: string | null; readonly given: number | null }

export function defineAdding(store: FakeStore, tables: OutboxTables, data: OutboxStore): void {
  store.define('addEvent', addEvent(tables, sample), async (context, values) => {
    const [topic, aggregateType, aggregateId, eventType, payload, id, given, schemaVersion, contentType, headers, notBefore] =
      values
    const event: NewEvent = {
      topic: String(topic),
      aggregateType: String(aggregateType),
      aggregateId: String(aggregateId),
      eventType: String(eventType),
      payload: payload as Uint8Array,
      id: String(id),
      given: given === null ? null : Number(given),
      schemaVersion: Number(schemaVersion),
      contentType: String(contentType),
      headers: String(headers),
      notBefore: notBefore as string | null,
    }
    const start = event.given ?? 1
    const places = await drawEarly(context, data, 1)
    const taken = await context.insert(
      data.version,
      { type: event.aggregateType, id: event.aggregateId, version: start },
      (row) => ({ ...row, version: row.version === 0 ? start : row.version + 1 }),
    )
    const version = taken?.version ?? start
    refuseWrongVersion(event, version)
    await context.next()
    await insertEvent(context, data, { event, version })
    await context.next()
    await dispatch(context, data, { event, place: places.shift() })
    return [{ version: String(version) }]
  })

  store.define('addEvents', addEvents(tables, []), async (context, values) => {
    const events = readEvents(values)
    const repeated = await recordSources(context, data, values, events)
    const fresh = events.filter((event) => !repeated.has(event.id))
    const places = await drawEarly(context, data, fresh.length)
    const versions = await takeVersions(context, data, fresh)
    for (const event of fresh) await insertEvent(context, data, { event, version: versions.get(event.id) ?? 0 })
    const order = fresh.map((event) => ({ event, key: keyOf(event.aggregateType, event.aggregateId) }))
    order.sort((a, b) =>
      a.key < b.key ? -1 : a.key > b.key ? 1 : (versions.get(a.event.id) ?? 0) - (versions.get(b.event.id) ?? 0),
    )
    for (const { event } of order) await dispatch(context, data, { event, place: places.shift() })
    return events.map(({ id }) => ({ id, version: versions.has(id) ? String(versions.get(id)) : null, added: !repeated.has(id) }))
  })
}

/** Aggregates in a fixed order, each locked and moved by as many versions as it has events. */
async function takeVersions(
  context: StatementContext,
  data: OutboxStore,
  events: readonly NewEvent[],
): Promise<Map<string, number>> {
  if (events.some(({ given }) => given !== null))
    throw new Error('The fake store gives out versions of many events, it does not check them.')
  const versions = new Map<string, number>()
  const groups = new Map<string, NewEvent[]>()
  for (const event of events) {
    const key = `${event.aggregateType}\n${event.aggregateId}`
    groups.set(key, [...(groups.get(key) ?? []), event])
  }
  for (const [, group] of [...groups].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const [first] = group as [NewEvent]
    const count = group.length
    const taken = await context.insert(
      data.version,
      { type: first.aggregateType, id: first.aggregateId, version: count },
      (row) => ({ ...row, version: row.version + count }),
    )
    group.forEach((event, i) => versions.set(event.id, (taken?.version ?? count) - count + i + 1))
  }
  return versions
}

/** What was emitted before by the same source is not written again. */
async function recordSources(
  context: StatementContext,
  data: OutboxStore,
  values: Parameters<Parameters<FakeStore['define']>[2]>[1],
  events: readonly NewEvent[],
): Promise<ReadonlySet<string>> {
  const repeated = new Set<string>()
  if (values[12] === null) return repeated
  const [sources, sourceIds, ordinals] = [parseArray(values[11]), parseArray(values[12]), parseArray(values[13])]
  for (const [i, { id }] of events.entries()) {
    const [source, eventId, ordinal] = [sources[i], sourceIds[i], ordinals[i]]
    if (eventId === null || eventId === undefined) continue
    const row = { source: source ?? '', eventId, ordinal: Number(ordinal), id }
    if ((await context.insert(data.source, row, 'nothing')) === undefined) repeated.add(id)
  }
  await context.next()
  return repeated
}

async function insertEvent(
  context: StatementContext,
  data: OutboxStore,
  { event, version }: { readonly event: NewEvent; readonly version: number },
): Promise<void> {
  const { notBefore: _when, given: _asked, ...row } = event
  await context.insert(data.outbox, { ...row, version, occurredAt: context.now() })
}

/** The mutant's way: places in line are taken before the aggregate is locked. */
async function drawEarly(context: StatementContext, data: OutboxStore, count: number): Promise<number[]> {
  if (!data.broken.has('the version comes before the place')) return []
  const places = Array.from({ length: count }, () => data.dispatch.nextIdentity())
  await context.next()
  return places
}

async function dispatch(
  context: StatementContext,
  data: OutboxStore,
  { event, place }: { readonly event: NewEvent; readonly place: number | undefined },
): Promise<void> {
  const key = keyOf(event.aggregateType, event.aggregateId)
  await context.insert(data.dispatch, {
    lane: laneOf(key, data.lanes),
    seq: place ?? data.dispatch.nextIdentity(),
    key,
    eventId: event.id,
    state: 0,
    attempts: 0,
    void: false,
    nextRetryAt: event.notBefore === null ? null : Date.parse(event.notBefore),
    parkedAt: null,
    lastError: null,
  })
}

function readEvents(values: Parameters<Parameters<FakeStore['define']>[2]>[1]): NewEvent[] {
  const [ids, topics, types, aggregates, names] = values.slice(0, 5).map(texts)
  const payloads = bytes(values[5])
  const given = parseArray(values[6])
  const schemaVersions = numbers(values[7])
  const [contentTypes, headers] = [texts(values[8]), texts(values[9])]
  const notBefore = parseArray(values[10])
  return (ids ?? []).map((id, i) => ({
    id,
    topic: topics?.[i] ?? '',
    aggregateType: types?.[i] ?? '',
    aggregateId: aggregates?.[i] ?? '',
    eventType: names?.[i] ?? '',
    payload: payloads[i] ?? Buffer.of(),
    given: given[i] === undefined || given[i] === null ? null : Number(given[i]),
    schemaVersion: schemaVersions[i] ?? 1,
    contentType: contentTypes[i] ?? '',
    headers: headers[i] ?? '{}',
    notBefore: notBefore[i] ?? null,
  }))
}

function refuseWrongVersion({ given, aggregateType, aggregateId }: NewEvent, version: number): void {
  if (given === null || given === version) return
  throw new DatabaseFailure(
    'WB001',
    `Version ${given} of ${aggregateType} ${aggregateId} is out of turn: the next one is ${version}.`,
  )
}

const sample: EncodedEvent = {
  id: '',
  topic: '',
  aggregateType: '',
  aggregateId: '',
  eventType: '',
  payload: Buffer.of(),
  schemaVersion: 1,
  contentType: '',
  headers: {},
  version: undefined,
  notBefore: undefined,
  source: undefined,
  columns: undefined,
}
