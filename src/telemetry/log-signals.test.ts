import { describe, expect, test } from 'vitest'
import { WaybillError } from '../core/errors.ts'
import { createSignals, type SignalName } from '../core/signals.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { logRules } from './log-rules.ts'
import { logSignals, type LogEntry, type LogSignalsOptions } from './log-signals.ts'

function setUp(options: Partial<LogSignalsOptions> = {}) {
  const clock = createFakeClock()
  const signals = createSignals()
  const entries: LogEntry[] = []
  const end = logSignals({ signals, clock, log: (entry) => void entries.push(entry), ...options })
  return { clock, signals, entries, end }
}

const dead = {
  consumer: 'catalog',
  eventId: 'event-1',
  messageId: 'message-1',
  orderingKey: 'video-1',
  eventType: 'VideoPublished',
  aggregateType: 'video',
  aggregateId: 'video-1',
  reason: 'failed',
  attempts: 10,
  held: true,
  error: 'connect postgres://app:hunter2@db/x failed for {"card":"4111"}',
}

test('a dead letter is an error with the ids to go on by', () => {
  const { signals, entries } = setUp()
  signals.emit('consumer.dead', dead)
  expect(entries).toEqual([
    {
      level: 'error',
      signal: 'consumer.dead',
      message: 'An event was given up: a dead letter.',
      fields: {
        consumer: 'catalog',
        event_id: 'event-1',
        message_id: 'message-1',
        ordering_key: 'video-1',
        event_type: 'VideoPublished',
        aggregate_type: 'video',
        aggregate_id: 'video-1',
        reason: 'failed',
        attempts: 10,
        held: true,
      },
    },
  ])
})

describe('errors', () => {
  const canary = 'canary-payload'
  const said: Partial<Record<SignalName, unknown>> = {
    'consumer.dead': { ...dead, error: canary },
    'relay.stopped': { relay: 'r', eventId: 'e', aggregateType: 'a', aggregateId: 'i', attempts: 1, delayMs: 1, error: canary },
    'service.failed': { service: 's', error: new WaybillError('UNAVAILABLE', canary), failures: 1, delayMs: 1 },
    'consumer.disturbed': { consumer: 'c', topic: 't', error: Object.assign(new Error(canary), { code: 'ECONNREFUSED' }) },
    'listen.failed': { channel: 'c', error: { message: canary }, delayMs: 1 },
    'command.threw': { command: 'Pay', error: Object.assign(new Error(canary), { code: '23505' }) },
  }

  test('are told by class and code, and what they say is in no entry', () => {
    const { signals, entries } = setUp({ level: 'debug' })
    for (const [name, event] of Object.entries(said)) signals.emit(name as SignalName, event as never)
    expect(entries).toHaveLength(6)
    expect(JSON.stringify(entries)).not.toContain(canary)
    expect(entries.map(({ fields }) => fields['error_code'])).toEqual([
      undefined,
      undefined,
      'UNAVAILABLE',
      'ECONNREFUSED',
      undefined,
      '23505',
    ])
  })

  test('are told in their own words where that is asked for, without the passwords of addresses', () => {
    const { signals, entries } = setUp({ errors: 'text' })
    signals.emit('consumer.dead', dead)
    signals.emit('service.failed', { service: 's', error: new Error('password=hunter2 host=db'), failures: 1, delayMs: 1 })
    expect(entries.map(({ fields }) => fields['error'])).toEqual([
      'connect postgres://app:***@db/x failed for {"card":"4111"}',
      'password=*** host=db',
    ])
  })
})

test('an anomaly that repeats is written a few times, then counted, and the count is told', async () => {
  const { signals, entries, clock } = setUp({ burst: 3, windowMs: 60_000 })
  for (let n = 0; n < 100; n += 1) signals.emit('consumer.dead', dead)
  signals.emit('consumer.dead', { ...dead, consumer: 'billing' })
  expect(entries).toHaveLength(4)
  await clock.advance(60_000)
  signals.emit('consumer.dead', dead)
  expect(entries).toHaveLength(5)
  expect(entries.at(-1)?.fields).toMatchObject({ consumer: 'catalog', repeated: 97 })
})

test('what is below the level is not made, and some signals are for metrics alone', () => {
  const { signals, entries } = setUp({ level: 'warn' })
  signals.emit('service.started', { service: 'relay x' })
  signals.emit('consumer.handled', { consumer: 'c', eventType: 't', durationMs: 1, failed: false })
  signals.emit('relay.breaker', { relay: 'r', outbox: 'waybill', state: 'closed' })
  expect(entries).toEqual([])
  signals.emit('relay.breaker', { relay: 'r', outbox: 'waybill', state: 'open', error: 'x' })
  expect(entries).toHaveLength(1)
})

test('lists are told by their length', () => {
  const { signals, entries } = setUp()
  signals.emit('lanes.lost', { worker: 'r', lanes: [1, 2, 3] })
  expect(entries[0]?.fields).toEqual({ worker: 'r', lanes: 3 })
})

test('nothing is written after the end', () => {
  const { signals, entries, end } = setUp()
  end()
  signals.emit('consumer.dead', dead)
  expect(entries).toEqual([])
})

test('every message is a sentence', () => {
  for (const { message } of Object.values(logRules)) expect(message).toMatch(/^[A-Z].*\.$/)
})
