/**
 * Every metric there is: its kind, unit, labels and what it says. Prometheus and OpenTelemetry are made from this list.
 *
 * Names are OpenTelemetry's without the leading `waybill.`; Prometheus adds the unit and `_total`, as its exporters do, so that
 * one dashboard serves both: `relay.published` is `waybill_relay_published_total`. Labels hold names from code and
 * configuration, never ids. A gauge with an age limit disappears when nobody has set it for so long: an old value that looks
 * like a new one would hide that nobody counts any more.
 */

export interface MetricDefinition {
  readonly kind: 'counter' | 'gauge' | 'histogram'
  /** `s` for seconds; without one it is a number of things. */
  readonly unit?: 's'
  readonly labels?: readonly string[]
  readonly help: string
  /** Upper bounds, ascending. Histograms only. */
  readonly buckets?: readonly number[]
  /** Gauges only. */
  readonly maxAgeMs?: number
}

export type CounterName =
  | 'transaction.retries'
  | 'transaction.unknown'
  | 'transaction.hook_failures'
  | 'transaction.used_after_end'
  | 'database.connections_lost'
  | 'service.failures'
  | 'service.ended_by_error'
  | 'signals.failures'
  | 'lanes.lost'
  | 'relay.published'
  | 'relay.failures'
  | 'relay.parked'
  | 'relay.events_missing'
  | 'outbox.removed'
  | 'outbox.notify_failures'
  | 'listen.failures'
  | 'backfill.waits'
  | 'blobs.expired'
  | 'consumer.applied'
  | 'consumer.duplicates'
  | 'consumer.processed'
  | 'consumer.failures'
  | 'consumer.retries'
  | 'consumer.dead_letters'
  | 'consumer.stopped_keys'
  | 'consumer.ack_unconfirmed'
  | 'consumer.ignored_streams'
  | 'consumer.came_early'
  | 'consumer.refused'
  | 'consumer.unsigned'
  | 'consumer.ids_reused'
  | 'consumer.version_jumps'
  | 'consumer.put_aside'
  | 'consumer.fact_conflicts'
  | 'consumer.forks'
  | 'consumer.disturbances'
  | 'inbox.removed'
  | 'inbox.memory_short'
  | 'retention.clock_leap_seconds'
  | 'ingest.accepted'
  | 'ingest.refused'
  | 'command.outcomes'
  | 'command.retries'
  | 'command.admitted'
  | 'command.refused'
  | 'command.responses_dropped'
  | 'command.request_ids_missing'
  | 'command.required_too_early'
  | 'command.cache_failures'
  | 'command.markers_removed'

export type GaugeName =
  | 'service.running'
  | 'lanes.held'
  | 'relay.breaker_open'
  | 'outbox.backlog'
  | 'outbox.oldest_age'
  | 'outbox.oldest_due_age'
  | 'outbox.highest_attempts'
  | 'outbox.unowned_lanes'
  | 'outbox.oldest_snapshot_age'
  | 'backfill.rows'
  | 'consumer.lag'
  | 'consumer.in_flight'
  | 'consumer.oldest_in_flight'
  | 'consumer.stored_lag'
  | 'consumer.waiting'
  | 'consumer.waiting_aggregates'
  | 'consumer.held_aggregates'
  | 'consumer.oldest_waiting'
  | 'consumer.unsettled_dead_letters'
  | 'consumer.paused'
  | 'transport.lag_messages'
  | 'ingest.breaker_open'
  | 'command.waiting'
  | 'command.cache_breaker_open'
  | 'command.cleanup_lag'

export type HistogramName =
  | 'relay.publish_delay'
  | 'relay.batch_duration'
  | 'relay.retry_delay'
  | 'consumer.batch_duration'
  | 'consumer.ack_delay'
  | 'consumer.handler_duration'
  | 'consumer.delay'
  | 'ingest.duration'
  | 'command.duration'
  | 'command.cleanup_duration'

export type MetricName = CounterName | GaugeName | HistogramName

type Definitions = Readonly<
  Record<CounterName, MetricDefinition & { readonly kind: 'counter' }> &
    Record<GaugeName, MetricDefinition & { readonly kind: 'gauge' }> &
    Record<HistogramName, MetricDefinition & { readonly kind: 'histogram' }>
>

const quick: readonly number[] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
const slow: readonly number[] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600]

/** Counted every 5 seconds by one of the relays; while the broker is out of reach they take lanes, and count, twice a minute only. */
const countedOftenMs = 45_000
/** Told with every batch, or every 10 seconds. */
const toldOftenMs = 60_000

const counter = (help: string, ...labels: readonly string[]): MetricDefinition & { readonly kind: 'counter' } => ({
  kind: 'counter',
  help,
  labels,
})
const duration = (
  help: string,
  buckets: readonly number[],
  ...labels: readonly string[]
): MetricDefinition & { readonly kind: 'histogram' } => ({ kind: 'histogram', unit: 's', help, buckets, labels })
const gauge = (
  help: string,
  { labels = [], unit, maxAgeMs }: Pick<MetricDefinition, 'labels' | 'unit' | 'maxAgeMs'> = {},
): MetricDefinition & { readonly kind: 'gauge' } => ({
  kind: 'gauge',
  help,
  labels,
  ...(unit === undefined ? {} : { unit }),
  ...(maxAgeMs === undefined ? {} : { maxAgeMs }),
})

/** An outbox is a schema; a service may have several. */
const perOutbox = { labels: ['outbox'], maxAgeMs: countedOftenMs }
const perConsumer = { labels: ['consumer'], maxAgeMs: toldOftenMs }

export const metricDefinitions: Definitions = {
  'transaction.retries': counter('Transactions run again because the database refused to serialise them.', 'sql_state'),
  'transaction.unknown': counter('Connections lost during COMMIT, by what looking found.', 'outcome'),
  'transaction.hook_failures': counter('What was to happen after a commit and threw.'),
  'transaction.used_after_end': counter('What was refused because its transaction had ended.', 'rolled_back'),
  'database.connections_lost': counter('Idle connections that broke.'),
  'service.running': gauge('1 while the service runs in this process.', { labels: ['service'] }),
  'service.failures': counter('Passes that threw; each is tried again.', 'service'),
  'service.ended_by_error': counter('Services that could not go on.', 'service'),
  'signals.failures': counter('Subscribers of signals that threw.', 'signal'),

  'lanes.held': gauge('Lanes that relays of this process hold.'),
  'lanes.lost': counter('Lanes that were another relay’s when this one looked.'),

  'relay.published': counter('Events that the broker confirmed.'),
  'relay.publish_delay': duration('From the occurrence of an event to its confirmation by the broker.', slow),
  'relay.batch_duration': duration('From reading a batch to its settlement.', quick),
  'relay.failures': counter('Publishes that failed and stop their key.'),
  'relay.retry_delay': duration('How long a failed event waits for its next attempt.', slow),
  'relay.parked': counter('Events that gave up and wait for an operator.'),
  'relay.events_missing': counter('Events that were deleted before they were published.'),
  'relay.breaker_open': gauge('1 while the broker is out of reach.', { labels: ['outbox'] }),
  'outbox.backlog': gauge('Events that wait, by state. Of each, 100,000 stands for all that is more.', {
    ...perOutbox,
    labels: ['outbox', 'state'],
  }),
  'outbox.oldest_age': gauge('Age of the oldest event that waits; 0 if none does.', { unit: 's', ...perOutbox }),
  'outbox.oldest_due_age': gauge('The same without what is parked, held or to be sent later.', { unit: 's', ...perOutbox }),
  'outbox.highest_attempts': gauge('Most attempts that an event which waits has had.', perOutbox),
  'outbox.unowned_lanes': gauge('Lanes that no relay works.', perOutbox),
  'outbox.oldest_snapshot_age': gauge(
    'Age of the oldest snapshot, which keeps dead rows alive; absent if the role may not see it.',
    { unit: 's', ...perOutbox },
  ),
  'outbox.removed': counter('Rows that retention removed.', 'kind'),
  'outbox.notify_failures': counter('Commits that could not be announced; polling finds them.'),
  'listen.failures': counter('LISTEN connections that broke or could not be made.'),
  'backfill.rows': gauge('Rows that a backfill has looked at.', { labels: ['backfill'], maxAgeMs: toldOftenMs }),
  'backfill.waits': counter('Times that a backfill held back.', 'backfill', 'reason'),
  'blobs.expired': counter('Payloads of claim checks that were removed.'),

  'consumer.applied': counter('Events whose effects committed.', 'consumer'),
  'consumer.duplicates': counter('Deliveries that were recognised as repeats.', 'consumer'),
  'consumer.batch_duration': duration('From the start of a batch to its acknowledgement.', quick, 'consumer'),
  'consumer.ack_delay': duration('From the commit of a batch to its acknowledgement.', quick, 'consumer'),
  'consumer.handler_duration': duration('Calls of handlers.', quick, 'consumer', 'event_type'),
  'consumer.delay': duration('Age of the oldest event of a batch when it was applied.', slow, 'consumer'),
  'consumer.lag': gauge('Age of the oldest event of the last batch when it was applied.', { unit: 's', ...perConsumer }),
  'consumer.in_flight': gauge('Messages in hand: received and not settled.', perConsumer),
  'consumer.oldest_in_flight': gauge('How long the oldest message has been in hand.', { unit: 's', ...perConsumer }),
  'consumer.processed': counter('Stored messages that were worked through.', 'consumer'),
  'consumer.stored_lag': gauge('Longest time that a message of the last batch had been stored.', { unit: 's', ...perConsumer }),
  'consumer.failures': counter('Events that failed and are tried again.', 'consumer'),
  'consumer.retries': counter('Events of batches that met an outage or a lock.', 'consumer'),
  'consumer.dead_letters': counter('Events that were given up.', 'consumer', 'reason'),
  'consumer.stopped_keys': counter('Events that used up their attempts and stop their key.', 'consumer'),
  'consumer.ack_unconfirmed': counter('Acknowledgements that the broker did not confirm.', 'consumer'),
  'consumer.ignored_streams': counter('Streams of a topic that the consumer does not read.', 'consumer'),
  'consumer.put_aside': counter('Events that were stored for another running version of the consumer.', 'consumer'),
  'consumer.came_early': counter('Events that came before their predecessor.', 'consumer'),
  'consumer.refused': counter('Messages whose signature is missing, wrong, or of an unknown key.', 'consumer', 'reason'),
  'consumer.unsigned': counter('Unsigned messages that were let in.', 'consumer'),
  'consumer.ids_reused': counter('Events that came under the id of another one, with other content.', 'consumer'),
  'consumer.version_jumps': counter('Events whose version was too far ahead of their aggregate.', 'consumer'),
  'consumer.fact_conflicts': counter('Facts that came under the business key of another one, with other content.', 'consumer'),
  'consumer.forks': counter('Events whose version another event has taken.', 'consumer'),
  'consumer.waiting': gauge('Messages that are stored until their turn.', perConsumer),
  'consumer.waiting_aggregates': gauge('Aggregates that messages wait for.', perConsumer),
  'consumer.held_aggregates': gauge('Aggregates that stand still behind a dead letter or a pause.', perConsumer),
  'consumer.oldest_waiting': gauge('How long the oldest message has waited for its turn, pauses left out.', {
    unit: 's',
    ...perConsumer,
  }),
  'consumer.unsettled_dead_letters': gauge('Dead letters that nobody has settled, counted up to 10,000.', perConsumer),
  'consumer.disturbances': counter('Times that receiving was disturbed.', 'consumer', 'topic'),
  'consumer.paused': gauge('1 while an operator has paused the consumer.', { labels: ['consumer'] }),
  'transport.lag_messages': gauge('Messages of a partition that a consumer has not settled.', {
    labels: ['transport', 'topic', 'consumer', 'partition'],
    maxAgeMs: toldOftenMs,
  }),
  'inbox.removed': counter('Rows that retention removed.', 'kind'),
  'retention.clock_leap_seconds': counter('Time that the clock of the database has gained and no clean-up has witnessed.', 's'),
  'inbox.memory_short': counter('Starts at which the inbox would forget before the broker does.'),

  'ingest.accepted': counter('Facts that the broker confirmed.', 'event'),
  'ingest.duration': duration('Calls that brought facts to the broker.', quick, 'event'),
  'ingest.refused': counter('Facts that were not accepted, by code.', 'event', 'code'),
  'ingest.breaker_open': gauge('1 while the broker of an ingest is out of reach.', { labels: ['event'] }),

  'command.outcomes': counter('Commands by how they ended.', 'command', 'outcome'),
  'command.duration': duration('Commands that took effect.', quick, 'command'),
  'command.retries': counter('Attempts that lost a race and were made again.', 'command', 'reason'),
  'command.waiting': gauge('Commands that wait in line for their aggregate or their principal.'),
  'command.admitted': counter('Commands that waited in line and got their place.', 'command', 'at'),
  'command.refused': counter(
    'Commands that got no place: the line was full, the wait too long, or the caller gave up.',
    'command',
    'at',
    'reason',
  ),
  'command.responses_dropped': counter('Responses too large to be kept for repeats.', 'command'),
  'command.request_ids_missing': counter('Commands that came without a request id.', 'command', 'refused'),
  'command.required_too_early': counter('Request ids made mandatory while commands came without them.', 'command'),
  'command.cache_failures': counter('Calls of the cache that failed or took too long.', 'operation'),
  'command.cache_breaker_open': gauge('1 while the cache is left out.'),
  'command.markers_removed': counter('Markers that clean-up removed.'),
  'command.cleanup_lag': gauge('How long the oldest marker has been due for deletion.', { unit: 's', maxAgeMs: toldOftenMs }),
  'command.cleanup_duration': duration('Clean-up passes.', quick),
}

export type Labels = Readonly<Record<string, string>>

/** Where measurements go. */
export interface MetricSink {
  add(metric: CounterName, amount: number, labels?: Labels): void
  set(metric: GaugeName, value: number, labels?: Labels): void
  observe(metric: HistogramName, value: number, labels?: Labels): void
}

/** The name that Prometheus shows. */
export function prometheusName(metric: MetricName): string {
  const { kind, unit }: MetricDefinition = metricDefinitions[metric]
  return `waybill_${metric.replaceAll('.', '_')}${unit === 's' ? '_seconds' : ''}${kind === 'counter' ? '_total' : ''}`
}
