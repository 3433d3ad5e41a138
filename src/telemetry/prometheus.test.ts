import { expect, test } from 'vitest'
import { createSignals, type SignalName } from '../core/signals.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { metricDefinitions, prometheusName, type MetricName } from './metric-definitions.ts'
import { createMetrics } from './metrics.ts'

function setUp(maxSeries = 500) {
  const clock = createFakeClock()
  const signals = createSignals()
  const metrics = createMetrics({ signals, clock, maxSeries })
  const lines = (name: string): string[] =>
    metrics
      .text()
      .split('\n')
      .filter((line) => line.startsWith(name))
  return { clock, signals, metrics, lines }
}

const backlog = {
  outbox: 'waybill',
  due: 3,
  retrying: 1,
  held: 0,
  parked: 0,
  oldestAgeMs: 1_500,
  oldestDueAgeMs: 1_000,
  highestAttempts: 2,
  unownedLanes: 4,
  oldestSnapshotAgeMs: 0,
}

test('counters without labels are there before anything happened, so that the first event is an increase', () => {
  const { signals, lines } = setUp()
  expect(lines('waybill_relay_parked_total')).toEqual(['waybill_relay_parked_total 0'])
  const event = { relay: 'r', eventId: 'e', aggregateType: 'a', aggregateId: 'i', attempts: 20, error: 'x' }
  signals.emit('relay.parked', event)
  expect(lines('waybill_relay_parked_total')).toEqual(['waybill_relay_parked_total 1'])
})

test('a histogram cumulates its buckets, and a value on a bound is within it', () => {
  const { signals, lines } = setUp()
  signals.emit('relay.published', { relay: 'r', count: 4, durationMs: 3, delaysMs: [5, 10, 11, 99_999_999] })
  expect(lines('waybill_relay_publish_delay_seconds_bucket')).toHaveLength(17)
  expect(lines('waybill_relay_publish_delay_seconds')).toEqual(
    expect.arrayContaining([
      'waybill_relay_publish_delay_seconds_bucket{le="0.005"} 1',
      'waybill_relay_publish_delay_seconds_bucket{le="0.01"} 2',
      'waybill_relay_publish_delay_seconds_bucket{le="0.025"} 3',
      'waybill_relay_publish_delay_seconds_bucket{le="3600"} 3',
      'waybill_relay_publish_delay_seconds_bucket{le="+Inf"} 4',
      'waybill_relay_publish_delay_seconds_count 4',
    ]),
  )
})

test('labels are written so that no value can end its quotes', () => {
  const { signals, lines } = setUp()
  signals.emit('consumer.ignored', { consumer: 'a"b\\c\nd', topic: 't', aggregateType: 'x' })
  expect(lines('waybill_consumer_ignored_streams_total')).toEqual([
    'waybill_consumer_ignored_streams_total{consumer="a\\"b\\\\c\\nd"} 1',
  ])
})

test('more sets of labels than allowed are counted as other, and nothing is lost', () => {
  const { signals, lines } = setUp(2)
  for (const n of [1, 2, 3, 4, 3]) signals.emit('command.replayed', { command: `c${n}`, from: 'cache' })
  expect(lines('waybill_command_outcomes_total')).toEqual([
    'waybill_command_outcomes_total{command="c1",outcome="replayed"} 1',
    'waybill_command_outcomes_total{command="c2",outcome="replayed"} 1',
    'waybill_command_outcomes_total{command="other",outcome="other"} 3',
  ])
})

test('the age of a snapshot that may not be seen is absent, not nothing', () => {
  const { signals, lines } = setUp()
  signals.emit('relay.backlog', { ...backlog, oldestSnapshotAgeMs: null })
  expect(lines('waybill_outbox_oldest_snapshot_age_seconds')).toEqual([])
  signals.emit('relay.backlog', { ...backlog, oldestSnapshotAgeMs: 2_000 })
  expect(lines('waybill_outbox_oldest_snapshot_age_seconds')).toEqual([
    'waybill_outbox_oldest_snapshot_age_seconds{outbox="waybill"} 2',
  ])
})

test('a backlog that nobody counts any more disappears', async () => {
  const { signals, lines, clock } = setUp()
  signals.emit('relay.backlog', backlog)
  expect(lines('waybill_outbox_oldest_age_seconds')).toEqual(['waybill_outbox_oldest_age_seconds{outbox="waybill"} 1.5'])
  expect(lines('waybill_outbox_backlog{outbox="waybill",state="due"}')).toEqual([
    'waybill_outbox_backlog{outbox="waybill",state="due"} 3',
  ])
  // Between two looks at a broker that is out of reach it stays.
  await clock.advance(31_000)
  expect(lines('waybill_outbox_oldest_age_seconds')).toHaveLength(1)
  await clock.advance(14_001)
  expect(lines('waybill_outbox_')).not.toContainEqual(expect.stringContaining('oldest_age'))
  signals.emit('relay.backlog', { ...backlog, oldestAgeMs: 0 })
  expect(lines('waybill_outbox_oldest_age_seconds')).toEqual(['waybill_outbox_oldest_age_seconds{outbox="waybill"} 0'])
})

test('an outbox does not hide another of the same service', () => {
  const { signals, lines } = setUp()
  signals.emit('relay.backlog', { ...backlog, parked: 1 })
  signals.emit('relay.backlog', { ...backlog, outbox: 'audit', parked: 0 })
  expect(lines('waybill_outbox_backlog').filter((line) => line.includes('parked'))).toEqual([
    'waybill_outbox_backlog{outbox="waybill",state="parked"} 1',
    'waybill_outbox_backlog{outbox="audit",state="parked"} 0',
  ])
})

test('dead letters that nobody has settled are shown, until nobody counts them any more', async () => {
  const { clock, signals, lines } = setUp()
  const waiting = { consumer: 'films', messages: 0, aggregates: 0, held: 0, oldestMs: 0, alert: false }
  signals.emit('consumer.backlog', { ...waiting, dead: 3 })
  expect(lines('waybill_consumer_unsettled_dead_letters')).toEqual([
    'waybill_consumer_unsettled_dead_letters{consumer="films"} 3',
  ])
  await clock.advance(61_000)
  expect(lines('waybill_consumer_unsettled_dead_letters')).toEqual([])
})

test('lanes held are what all relays of the process took and did not give back or lose', () => {
  const { signals, lines } = setUp()
  signals.emit('lanes.acquired', { worker: 'a', lanes: [1, 2, 3] })
  signals.emit('lanes.acquired', { worker: 'b', lanes: [4] })
  signals.emit('lanes.lost', { worker: 'a', lanes: [1] })
  signals.emit('lanes.released', { worker: 'b', lanes: [4] })
  expect(lines('waybill_lanes_')).toEqual(['waybill_lanes_held 2', 'waybill_lanes_lost_total 1'])
})

test('the name of a relay, which is new with every process, is no label', () => {
  const { signals, metrics } = setUp()
  signals.emit('service.started', { service: 'relay 0123456789abcdef' })
  signals.emit('service.started', { service: 'consumer catalog' })
  expect(metrics.text()).toContain('waybill_service_running{service="relay"} 1')
  expect(metrics.text()).toContain('waybill_service_running{service="consumer catalog"} 1')
  expect(metrics.text()).not.toContain('0123456789abcdef')
})

test('nothing is measured after close', () => {
  const { signals, metrics, lines } = setUp()
  metrics.close()
  signals.emit('blobs.expired', { count: 3 })
  expect(lines('waybill_blobs_expired_total')).toEqual(['waybill_blobs_expired_total 0'])
})

test('scrapes are answered with the type that Prometheus wants, and nothing but reading is allowed', async () => {
  const { metrics } = setUp()
  const response = metrics.handler(new Request('http://localhost/metrics'))
  expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
  expect(await response.text()).toBe(metrics.text())
  expect(metrics.handler(new Request('http://localhost/metrics', { method: 'POST' })).status).toBe(405)
})

test('every name is one that Prometheus allows, and no two are the same', () => {
  const names = (Object.keys(metricDefinitions) as MetricName[]).map(prometheusName)
  expect(new Set(names).size).toBe(names.length)
  for (const name of names) expect(name).toMatch(/^waybill_[a-z_]+$/)
})

test('no measured signal shows ids, keys, principals or what an error said', () => {
  const { signals, metrics } = setUp()
  const secret = 'canary-7f3a'
  const event = {
    eventId: secret,
    messageId: secret,
    orderingKey: secret,
    aggregateType: secret,
    aggregateId: secret,
    error: secret,
  }
  const eventType = secret
  const said: Partial<Record<SignalName, unknown>> = {
    'relay.stopped': { ...event, relay: secret, attempts: 1, delayMs: 1 },
    'relay.parked': { ...event, relay: secret, attempts: 1 },
    'relay.event-missing': { relay: secret, eventId: secret },
    'consumer.failed': { ...event, eventType, consumer: 'c', attempts: 1, delayMs: 1 },
    'consumer.dead': { ...event, eventType, consumer: 'c', reason: 'failed', attempts: 1, held: true },
    'consumer.stopped': { ...event, eventType, consumer: 'c', attempts: 1 },
    'consumer.waiting': { ...event, consumer: 'c', version: '1' },
    'command.rejected': { command: 'c', reason: secret, replayed: false },
    'command.threw': { command: 'c', error: new Error(secret) },
    'command.request-id-missing': { command: 'c', client: secret, refused: true },
    'service.failed': { service: `relay ${secret}`, error: new Error(secret), failures: 1, delayMs: 1 },
    'listen.failed': { channel: secret, error: new Error(secret), delayMs: 1 },
  }
  for (const [name, each] of Object.entries(said)) signals.emit(name as SignalName, each as never)
  expect(metrics.text()).not.toContain(secret)
})
