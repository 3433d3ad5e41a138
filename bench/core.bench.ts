/**
 * What reporting and naming cost on the hot path: a signal nobody hears, a signal somebody hears, and a time-ordered id against
 * the platform's random one; and parsing a payload within its budget, beside parsing it without. All happen once or more per event, so they must
 * vanish beside a database round trip.
 */
import { randomUUID } from 'node:crypto'
import { parseWithin } from '../src/core/encoding/budget.ts'
import { defaults } from '../src/core/defaults.ts'
import { newId } from '../src/core/event/id.ts'
import { createSignals } from '../src/core/signals.ts'
import { type Bench, defineBench, nanosecondsPerCall } from './harness.ts'

export const bench: Bench = defineBench({
  name: 'core',
  summary: 'cost of a signal with no and one listener, of a UUIDv7 beside crypto.randomUUID, and of bounded JSON beside JSON',
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
      small: orderOf(5),
      large: orderOf(100),
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
    'bounded 0.8 kB': ({ calls, small }) => nanosecondsPerCall(calls / 10, () => parseWithin(small, defaults.budget)),
    'parse 0.8 kB': ({ calls, small }) => nanosecondsPerCall(calls / 10, () => JSON.parse(small)),
    'bounded 15 kB': ({ calls, large }) => nanosecondsPerCall(calls / 100, () => parseWithin(large, defaults.budget)),
    'parse 15 kB': ({ calls, large }) => nanosecondsPerCall(calls / 100, () => JSON.parse(large)),
  },
  bars: [
    { name: 'emit, no listener', target: 200, direction: 'at-most', of: (sample) => sample('emit, no listener') },
    { name: 'emit, one listener', target: 300, direction: 'at-most', of: (sample) => sample('emit, one listener') },
    { name: 'newId ÷ randomUUID', target: 10, direction: 'at-most', of: (sample) => sample('newId') / sample('randomUUID') },
    {
      name: 'bounded ÷ parse, 0.8 kB',
      target: 1.15,
      direction: 'at-most',
      of: (sample) => sample('bounded 0.8 kB') / sample('parse 0.8 kB'),
    },
    {
      name: 'bounded ÷ parse, 15 kB',
      target: 1.15,
      direction: 'at-most',
      of: (sample) => sample('bounded 15 kB') / sample('parse 15 kB'),
    },
  ],
})

/** An order with so many lines, as JSON. */
function orderOf(lines: number): string {
  const line = (i: number): object => ({
    product: `product-${i}`,
    name: 'A thing of some kind',
    amount: i,
    cents: 1_999,
    gift: false,
    tags: ['new', 'red'],
  })
  return JSON.stringify({ id: '0198f1de-5bb2-7e53-b1a5-6bd0b1a5c2d4', lines: Array.from({ length: lines }, (_, i) => line(i)) })
}
