/**
 * What the `insert` sink makes of a Kafka topic, against a bare loop of set-based inserts of the same rows and against a consumer
 * that does one event at a time, in one run; beside them the whole way from the outbox, and Kafka's own measuring tools.
 */
import { perEvent, rawInserts } from './kafka/by-hand.ts'
import { openKafkaBench, type KafkaBench } from './kafka/kafka-bench.ts'
import { consumerTool, producerTool } from './kafka/kafka-tools.ts'
import { endToEnd, rowsOnly, sinkAlone } from './kafka/sink.ts'
import { defineBench, type Bench } from './harness.ts'

export const bench: Bench = defineBench<KafkaBench>({
  name: 'kafka',
  summary: 'facts from Kafka into a table, against bare set-based inserts and a transaction per event',
  unit: 'rows/s (tools: records/s)',
  setup: ({ quick }) => openKafkaBench(quick),
  close: (context) => context.close(),
  contenders: {
    sink: (context) => sinkAlone(context),
    'raw unnest, one loop': (context) => rawInserts(context, 1),
    'raw unnest, two loops': (context) => rawInserts(context, 2),
    'per event, 8 partitions': (context) => perEvent(context, context.quick ? 512 : 2_048),
    'sink, offsets in Postgres': (context) => sinkAlone(context, { ...rowsOnly, offsets: 'postgres' }),
    'sink, inbox and positions': (context) => sinkAlone(context, {}),
    'relay → Kafka → sink': (context) => endToEnd(context),
    "Kafka's producer tool": (context) => producerTool(context),
    "Kafka's consumer tool": (context) => consumerTool(context),
  },
  // One consumer beside one loop. Two loops use both cores of a small machine for the database, and leave none for a broker.
  bars: [
    { name: 'sink ÷ raw unnest', target: 0.7, direction: 'at-least', of: (s) => s('sink') / s('raw unnest, one loop') },
    { name: 'sink ÷ per event', target: 10, direction: 'at-least', of: (s) => s('sink') / s('per event, 8 partitions') },
  ],
})
