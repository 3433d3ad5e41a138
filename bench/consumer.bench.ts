/**
 * What the consumer costs, against a transaction per event and against the limit of bare set-based statements, in one run.
 */
import { consume, openConsumerBench, videos, type ConsumerBench } from './consumer/consumer-bench.ts'
import { perEvent, setBased } from './consumer/by-hand.ts'
import type { ConsumerOptions } from '../src/consumer/model/consumer-options.ts'
import { defineBench, type Bench } from './harness.ts'

/** As many as a consumer works at a time unless it is told otherwise; with more loops the bare statements gain nothing either. */
const parallel = 4

const project = (
  bench: ConsumerBench,
  batchSize: number,
  count: number,
  options: Partial<ConsumerOptions> = {},
): Promise<number> =>
  consume(bench, { count, batchSize, concurrency: parallel, ...options }, (consumer) =>
    consumer.project(videos, {
      table: 'video',
      key: 'video_id',
      set: ({ data }) => ({ title: data.title, url: data.url, views: data.views }),
    }),
  )

const on = (bench: ConsumerBench, batchSize: number, count: number): Promise<number> =>
  consume(bench, { count, batchSize, concurrency: parallel }, (consumer) =>
    consumer.on(videos.VideoPublished, async ({ id, data }, { tx }) => {
      await tx.query('insert into seen (event_id, title) values ($1, $2)', [id, data.title])
    }),
  )

export const bench: Bench = defineBench<ConsumerBench>({
  name: 'consumer',
  summary: 'projections and handlers in batches, against a transaction per event and bare set-based statements',
  unit: 'events/s',
  setup: ({ quick }) => openConsumerBench(quick),
  close: (context) => context.close(),
  contenders: {
    'per event, 8 in parallel': (context) => perEvent(context, 3_000, 8),
    'set-based by hand, 500': (context) => setBased(context, 60_000, parallel),
    'project, 500': (context) => project(context, 500, 60_000),
    'project, 500, no positions': (context) => project(context, 500, 60_000, { positions: 'needed' }),
    'project, 500, no inbox': (context) => project(context, 500, 60_000, { inbox: false }),
    'stored, project': (context) => project(context, 500, 20_000, { mode: 'stored' }),
    'project, 100': (context) => project(context, 100, 20_000),
    'project, 10': (context) => project(context, 10, 3_000),
    'project, 1': (context) => project(context, 1, 600),
    'on, 500': (context) => on(context, 500, 5_000),
    'on, 100': (context) => on(context, 100, 5_000),
    'on, 10': (context) => on(context, 10, 3_000),
    'on, 1': (context) => on(context, 1, 600),
  },
  bars: [
    {
      name: 'project ≥ 8 × per event',
      target: 8,
      direction: 'at-least',
      of: (s) => s('project, 500') / s('per event, 8 in parallel'),
    },
    { name: 'on ≥ 2 × per event', target: 2, direction: 'at-least', of: (s) => s('on, 500') / s('per event, 8 in parallel') },
    {
      name: 'stored ≥ 4 × per event',
      target: 4,
      direction: 'at-least',
      of: (s) => s('stored, project') / s('per event, 8 in parallel'),
    },
    // The same two writes on both sides, of the event and of the row. Positions are a third, which by hand nobody makes.
    {
      name: 'project ≥ 0.7 × set-based',
      target: 0.7,
      direction: 'at-least',
      of: (s) => s('project, 500, no positions') / s('set-based by hand, 500'),
    },
  ],
})
