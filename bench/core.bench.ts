/**
 * What reporting and naming cost on the hot path: a signal nobody hears, a signal somebody hears, and a time-ordered id against
 * the platform's random one. All three happen once or more per event, so they must vanish beside a database round trip.
 */
import { randomUUID } from 'node:crypto'
import { newId } from '../src/core/id.ts'
import { createSignals } from '../src/core/signals.ts'
import { type Bench, defineBench, nanosecondsPerCall } from './harness.ts'

export const bench: Bench = defineBench({
  name: 'core',
  summary: 'cost of a signal with no and one listener, and of a UUIDv7 beside crypto.randomUUID',
  unit: 'ns/call',
  setup: ({ quick }) => {
    const heard = createSignals()
    let count = 0
    heard.on('service.started', () => {
      count += 1
    })
    return {
      calls: quick ? 50_000 : 1_000_000,
      silent: createSignals(),
      heard,
      counted: () => count,
      event: { service: 'bench' },
    }
  },
  close: ({ counted }) => {
    if (counted() === 0) throw new Error('The listener was never called: the bench measured nothing.')
  },
  contenders: {
    'emit, no listener': ({ calls, silent, event }) => nanosecondsPerCall(calls, () => silent.emit('service.started', event)),
    'emit, one listener': ({ calls, heard, event }) => nanosecondsPerCall(calls, () => heard.emit('service.started', event)),
    newId: ({ calls }) => nanosecondsPerCall(calls, newId),
    randomUUID: ({ calls }) => nanosecondsPerCall(calls, () => randomUUID()),
  },
  bars: [
    { name: 'emit, no listener', target: 200, direction: 'at-most', of: (sample) => sample('emit, no listener') },
    { name: 'emit, one listener', target: 300, direction: 'at-most', of: (sample) => sample('emit, one listener') },
    { name: 'newId ÷ randomUUID', target: 10, direction: 'at-most', of: (sample) => sample('newId') / sample('randomUUID') },
  ],
})
