/**
 * Draining a backlog: the usual design, the bare statements, and the relay in its variants; and the log that each event costs.
 */
import { type Bench, defineBench } from '../harness.ts'
import { createDocumentsOutbox, drainDocuments, fillDocuments } from './documents-design.ts'
import { drain, drainRaw, empty, fill, openOutboxBench, walBytes, type OutboxBench } from './outbox-bench.ts'

interface Context {
  readonly bench: OutboxBench
  readonly events: number
}

const filled = async ({ bench, events }: Context): Promise<void> => {
  await empty(bench)
  await fill(bench, events)
}

export const drainBench: Bench = defineBench<Context>({
  name: 'drain',
  summary: 'events per second out of a backlog',
  unit: 'events/s (WAL: bytes/event)',
  setup: async ({ quick }) => {
    const bench = await openOutboxBench()
    await createDocumentsOutbox(bench)
    return { bench, events: quick ? 10_000 : 100_000 }
  },
  close: ({ bench }) => bench.close(),
  contenders: {
    'usual design': async ({ bench, events }) => {
      // Out of the same backlog, but not to its end: that would take minutes.
      await fillDocuments(bench, events)
      return await drainDocuments(bench, { count: Math.ceil(events / 20), batchSize: 500 })
    },
    'raw statements': async (context) => {
      await filled(context)
      return await drainRaw(context.bench)
    },
    'with receipts': async (context) => {
      await filled(context)
      return await drain(context.bench, context.events)
    },
    'without receipts': async (context) => {
      await filled(context)
      return await drain(context.bench, context.events, { receipts: false })
    },
    "retain: 'none'": async (context) => {
      await filled(context)
      return await drain(context.bench, context.events, { receipts: false, retain: 'none' })
    },
    '2 relays': async (context) => {
      await filled(context)
      return await drain(context.bench, context.events, { relays: 2 })
    },
    '4 relays': async (context) => {
      await filled(context)
      return await drain(context.bench, context.events, { relays: 4 })
    },
    'WAL with receipts': async (context) => {
      await filled(context)
      return (await walBytes(context.bench, () => drain(context.bench, context.events))) / context.events
    },
  },
  bars: [
    {
      name: 'with receipts ÷ usual design',
      target: 20,
      direction: 'at-least',
      of: (sample) => sample('with receipts') / sample('usual design'),
    },
    {
      name: 'with receipts ÷ raw statements',
      target: 0.7,
      direction: 'at-least',
      of: (sample) => sample('with receipts') / sample('raw statements'),
    },
    { name: 'WAL per event with receipts', target: 400, direction: 'at-most', of: (sample) => sample('WAL with receipts') },
  ],
})
