/**
 * Turns signals into measurements. Each signal of the catalogue has its line, so that whoever adds one decides here whether
 * and how it is counted.
 *
 * Nothing that names a single event, aggregate, request or principal becomes a label. Times become seconds.
 */
import type { SignalBus, SignalName, Signals } from '../core/signals.ts'
import type { MetricSink } from './metric-definitions.ts'

type Measure<Name extends SignalName> = (sink: MetricSink, event: Signals[Name]) => void
type Measures = { readonly [Name in SignalName]: Measure<Name> | undefined }

/** Measures everything that is signalled from now on; returns the function that ends it. */
export function measureSignals(signals: Pick<SignalBus, 'on'>, sink: MetricSink): () => void {
  const held = new Map<string, Set<number>>()
  const measures = { ...plain, ...lanesMeasures(held) } as Measures
  const ends = (Object.keys(measures) as SignalName[]).flatMap((name) => {
    const measure = measures[name] as Measure<SignalName> | undefined
    return measure === undefined ? [] : [signals.on(name, (event) => measure(sink, event))]
  })
  return () => ends.forEach((end) => end())
}

const seconds = (ms: number): number => ms / 1_000
const flag = (value: boolean): number => (value ? 1 : 0)
/** A relay's name is new with every process, and so would be the label. */
const kindOfService = (service: string): string => service.replace(/^relay .*/, 'relay')

const core = {
  'transaction.retried': (sink, { sqlState }) => sink.add('transaction.retries', 1, { sql_state: sqlState }),
  'transaction.unknown': (sink, { outcome }) => sink.add('transaction.unknown', 1, { outcome }),
  'transaction.hook-failed': (sink) => sink.add('transaction.hook_failures', 1),
  'transaction.used-after-end': (sink, { rolledBack }) =>
    sink.add('transaction.used_after_end', 1, { rolled_back: String(rolledBack) }),
  'database.idle-connection-lost': (sink) => sink.add('database.connections_lost', 1),
  'service.started': (sink, { service }) => sink.set('service.running', 1, { service: kindOfService(service) }),
  'service.stopped': (sink, { service, error }) => {
    const labels = { service: kindOfService(service) }
    sink.set('service.running', 0, labels)
    sink.add('service.ended_by_error', flag(error !== undefined), labels)
  },
  'service.failed': (sink, { service }) => sink.add('service.failures', 1, { service: kindOfService(service) }),
  'signals.failed': (sink, { signal }) => sink.add('signals.failures', 1, { signal }),
  'listen.ready': undefined,
  'listen.failed': (sink) => sink.add('listen.failures', 1),
} satisfies Partial<Measures>

const outbox = {
  'relay.published': (sink, { count, durationMs, delaysMs }) => {
    sink.add('relay.published', count)
    sink.observe('relay.batch_duration', seconds(durationMs))
    for (const delayMs of delaysMs) sink.observe('relay.publish_delay', seconds(Math.max(0, delayMs)))
  },
  'relay.stopped': (sink, { delayMs }) => {
    sink.add('relay.failures', 1)
    sink.observe('relay.retry_delay', seconds(delayMs))
  },
  'relay.parked': (sink) => {
    sink.add('relay.failures', 1)
    sink.add('relay.parked', 1)
  },
  'relay.event-missing': (sink) => sink.add('relay.events_missing', 1),
  'relay.breaker': (sink, { outbox: schema, state }) =>
    sink.set('relay.breaker_open', flag(state !== 'closed'), { outbox: schema }),
  'relay.backlog': (sink, backlog) => {
    const labels = { outbox: backlog.outbox }
    for (const state of ['due', 'retrying', 'held', 'parked'] as const)
      sink.set('outbox.backlog', backlog[state], { ...labels, state })
    sink.set('outbox.oldest_age', seconds(backlog.oldestAgeMs), labels)
    sink.set('outbox.oldest_due_age', seconds(backlog.oldestDueAgeMs), labels)
    sink.set('outbox.highest_attempts', backlog.highestAttempts, labels)
    sink.set('outbox.unowned_lanes', backlog.unownedLanes, labels)
    if (backlog.oldestSnapshotAgeMs !== null) sink.set('outbox.oldest_snapshot_age', seconds(backlog.oldestSnapshotAgeMs), labels)
  },
  'outbox.retained': (sink, removed) => {
    for (const kind of ['events', 'receipts', 'sources'] as const) sink.add('outbox.removed', removed[kind], { kind })
  },
  'outbox.notify-failed': (sink) => sink.add('outbox.notify_failures', 1),
  'backfill.progress': (sink, { backfill, rows }) => sink.set('backfill.rows', rows, { backfill }),
  'backfill.waiting': (sink, { backfill, reason }) => sink.add('backfill.waits', 1, { backfill, reason }),
  'backfill.finished': (sink, { backfill, rows }) => sink.set('backfill.rows', rows, { backfill }),
  'blobs.expired': (sink, { count }) => sink.add('blobs.expired', count),
} satisfies Partial<Measures>

const consumer = {
  'consumer.applied': (sink, { consumer: name, count, duplicates, durationMs, ackMs, lagMs }) => {
    const labels = { consumer: name }
    sink.add('consumer.applied', count, labels)
    sink.add('consumer.duplicates', duplicates, labels)
    sink.observe('consumer.batch_duration', seconds(durationMs), labels)
    sink.observe('consumer.ack_delay', seconds(ackMs), labels)
    sink.observe('consumer.delay', seconds(lagMs), labels)
    sink.set('consumer.lag', seconds(lagMs), labels)
  },
  'consumer.handled': (sink, { consumer: name, eventType, durationMs }) =>
    sink.observe('consumer.handler_duration', seconds(durationMs), { consumer: name, event_type: eventType }),
  'consumer.in-flight': (sink, { consumer: name, messages, oldestMs }) => {
    sink.set('consumer.in_flight', messages, { consumer: name })
    sink.set('consumer.oldest_in_flight', seconds(oldestMs), { consumer: name })
    // Shown from the start, so that the first failure is an increase.
    sink.add('consumer.failures', 0, { consumer: name })
    sink.add('consumer.applied', 0, { consumer: name })
  },
  'consumer.processed': (sink, { consumer: name, count, lagMs }) => {
    sink.add('consumer.processed', count, { consumer: name })
    sink.set('consumer.stored_lag', seconds(lagMs), { consumer: name })
  },
  'consumer.ack-unconfirmed': (sink, { consumer: name, count }) =>
    sink.add('consumer.ack_unconfirmed', count, { consumer: name }),
  'consumer.ignored': (sink, { consumer: name }) => sink.add('consumer.ignored_streams', 1, { consumer: name }),
  'consumer.refused': (sink, { consumer: name, reason }) => sink.add('consumer.refused', 1, { consumer: name, reason }),
  'consumer.unsigned': (sink, { consumer: name }) => sink.add('consumer.unsigned', 1, { consumer: name }),
  'consumer.id-reused': (sink, { consumer: name }) => sink.add('consumer.ids_reused', 1, { consumer: name }),
  'consumer.version-jumped': (sink, { consumer: name }) => sink.add('consumer.version_jumps', 1, { consumer: name }),
  'consumer.fact-conflict': (sink, { consumer: name }) => sink.add('consumer.fact_conflicts', 1, { consumer: name }),
  'consumer.put-aside': (sink, { consumer: name }) => sink.add('consumer.put_aside', 1, { consumer: name }),
  'consumer.waiting': (sink, { consumer: name }) => sink.add('consumer.came_early', 1, { consumer: name }),
  'consumer.forked': (sink, { consumer: name }) => sink.add('consumer.forks', 1, { consumer: name }),
  'consumer.backlog': (sink, { consumer: name, messages, aggregates, held, oldestMs, dead }) => {
    const labels = { consumer: name }
    sink.set('consumer.waiting', messages, labels)
    sink.set('consumer.waiting_aggregates', aggregates, labels)
    sink.set('consumer.held_aggregates', held, labels)
    sink.set('consumer.oldest_waiting', seconds(oldestMs), labels)
    sink.set('consumer.unsettled_dead_letters', dead, labels)
  },
  'consumer.failed': (sink, { consumer: name }) => sink.add('consumer.failures', 1, { consumer: name }),
  'consumer.dead': (sink, { consumer: name, reason }) => sink.add('consumer.dead_letters', 1, { consumer: name, reason }),
  'consumer.stopped': (sink, { consumer: name }) => sink.add('consumer.stopped_keys', 1, { consumer: name }),
  'consumer.retried': (sink, { consumer: name, count }) => sink.add('consumer.retries', count, { consumer: name }),
  'consumer.disturbed': (sink, { consumer: name, topic }) => sink.add('consumer.disturbances', 1, { consumer: name, topic }),
  'consumer.paused': (sink, { consumer: name, paused }) => sink.set('consumer.paused', flag(paused), { consumer: name }),
  'transport.lag': (sink, { messages, ...labels }) => sink.set('transport.lag_messages', messages, labels),
  'inbox.retained': (sink, { inbox, attempts, deadLetters, archive }) => {
    sink.add('inbox.removed', inbox, { kind: 'inbox' })
    sink.add('inbox.removed', attempts, { kind: 'attempts' })
    sink.add('inbox.removed', deadLetters, { kind: 'dead_letters' })
    sink.add('inbox.removed', archive, { kind: 'archive' })
  },
  'retention.clock-leapt': (sink, { byMs }) => sink.add('retention.clock_leap_seconds', seconds(byMs)),
  'inbox.memory-short': (sink) => sink.add('inbox.memory_short', 1),
} satisfies Partial<Measures>

const ingest = {
  'ingest.accepted': (sink, { event, count, durationMs }) => {
    sink.add('ingest.accepted', count, { event })
    sink.observe('ingest.duration', seconds(durationMs), { event })
  },
  'ingest.refused': (sink, { event, code }) => sink.add('ingest.refused', 1, { event, code: code.toLowerCase() }),
  'ingest.breaker': (sink, { event, state }) => sink.set('ingest.breaker_open', flag(state !== 'closed'), { event }),
} satisfies Partial<Measures>

const command = {
  'command.executed': (sink, { command: name, durationMs }) => {
    sink.add('command.outcomes', 1, { command: name, outcome: 'executed' })
    sink.observe('command.duration', seconds(durationMs), { command: name })
  },
  'command.replayed': (sink, { command: name }) => sink.add('command.outcomes', 1, { command: name, outcome: 'replayed' }),
  'command.rejected': (sink, { command: name }) => sink.add('command.outcomes', 1, { command: name, outcome: 'rejected' }),
  'command.failed': (sink, { command: name, code }) =>
    sink.add('command.outcomes', 1, { command: name, outcome: code.toLowerCase() }),
  'command.threw': (sink, { command: name }) => sink.add('command.outcomes', 1, { command: name, outcome: 'error' }),
  'command.retried': (sink, { command: name, reason }) => sink.add('command.retries', 1, { command: name, reason }),
  'command.queued': (sink, { waiting }) => sink.set('command.waiting', waiting),
  'command.admitted': (sink, { command: name, at, waiting }) => {
    sink.set('command.waiting', waiting)
    sink.add('command.admitted', 1, { command: name, at })
  },
  'command.refused': (sink, { command: name, at, reason, waiting }) => {
    sink.set('command.waiting', waiting)
    sink.add('command.refused', 1, { command: name, at, reason })
  },
  'command.response-dropped': (sink, { command: name }) => sink.add('command.responses_dropped', 1, { command: name }),
  'command.request-id-missing': (sink, { command: name, refused }) =>
    sink.add('command.request_ids_missing', 1, { command: name, refused: String(refused) }),
  'command.required-too-early': (sink, { command: name }) => sink.add('command.required_too_early', 1, { command: name }),
  'command.cache-failed': (sink, { operation }) => sink.add('command.cache_failures', 1, { operation }),
  // Said once per process; the log says what to do.
  'command.cache-unsealed': undefined,
  'command.cache-breaker': (sink, { state }) => sink.set('command.cache_breaker_open', flag(state !== 'closed')),
  'command.cleaned': (sink, { deleted, lagMs, durationMs }) => {
    sink.add('command.markers_removed', deleted)
    sink.set('command.cleanup_lag', seconds(lagMs))
    sink.observe('command.cleanup_duration', seconds(durationMs))
  },
  // The lag itself is measured with every pass.
  'command.cleanup-lagging': undefined,
} satisfies Partial<Measures>

type LaneSignal = 'lanes.acquired' | 'lanes.released' | 'lanes.lost'
const plain: Omit<Measures, LaneSignal> = { ...core, ...outbox, ...consumer, ...ingest, ...command }

/** What relays of this process hold, kept from what they took and gave. */
function lanesMeasures(held: Map<string, Set<number>>): Pick<Measures, LaneSignal> {
  const change = (sink: MetricSink, worker: string, { add = [], remove = [] }: LaneChange): void => {
    const lanes = held.get(worker) ?? new Set()
    add.forEach((lane) => lanes.add(lane))
    remove.forEach((lane) => lanes.delete(lane))
    if (lanes.size === 0) held.delete(worker)
    else held.set(worker, lanes)
    sink.set(
      'lanes.held',
      [...held.values()].reduce((sum, each) => sum + each.size, 0),
    )
  }
  return {
    'lanes.acquired': (sink, { worker, lanes }) => change(sink, worker, { add: lanes }),
    'lanes.released': (sink, { worker, lanes }) => change(sink, worker, { remove: lanes }),
    'lanes.lost': (sink, { worker, lanes }) => {
      change(sink, worker, { remove: lanes })
      sink.add('lanes.lost', lanes.length)
    },
  }
}

interface LaneChange {
  readonly add?: readonly number[]
  readonly remove?: readonly number[]
}
