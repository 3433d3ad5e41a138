import { expect, test } from 'vitest'
import { createSignals } from '../../core/signals.ts'
import { createTelemetry } from './telemetry.ts'

function setUp(values: Readonly<Record<string, boolean>> = {}) {
  const signals = createSignals()
  const notes: string[] = []
  createTelemetry(values, signals, (text) => void notes.push(text))
  return { signals, notes }
}

test('trouble is told in sentences with what the error said, one line each; what goes well is not', () => {
  const { signals, notes } = setUp()
  signals.emit('relay.published', { relay: 'r', count: 1, durationMs: 1, delaysMs: [1] })
  signals.emit('service.started', { service: 'r' })
  signals.emit('consumer.retried', { consumer: 'catalog', count: 3, delayMs: 100, error: 'the lock\nwas not had' })
  signals.emit('service.failed', { service: 'catalog', error: new TypeError('no luck'), failures: 1, delayMs: 50 })
  signals.emit('consumer.paused', { consumer: 'catalog', paused: true })
  expect(notes).toEqual([
    'A batch met an outage or a lock and is tried again. the lock was not had (consumer: catalog, count: 3, delay_ms: 100)',
    'A pass failed and is tried again. no luck (service: catalog, failures: 1, delay_ms: 50)',
    'An operator paused or resumed a consumer. (consumer: catalog, paused: true)',
  ])
})

test('trouble that repeats is told a few times in a minute', () => {
  const { signals, notes } = setUp()
  const failed = { relay: 'r', eventId: 'e', aggregateType: 'a', aggregateId: 'i', attempts: 1, delayMs: 1, error: 'refused' }
  for (let i = 0; i < 100; i += 1) signals.emit('relay.stopped', failed)
  expect(notes).toHaveLength(10)
})
