/**
 * What `outbox.add` adds to a business transaction, beside a plain insert of an equal row into a table of the same shape.
 */
import { state } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import type { Tx } from '../../src/postgres/query/database.ts'
import type { StandardSchema } from '../../src/core/encoding/standard-schema.ts'
import { type Bench, defineBench } from '../harness.ts'
import { empty, openOutboxBench, type OutboxBench } from './outbox-bench.ts'

interface Context {
  readonly bench: OutboxBench
  readonly transactions: number
  next: number
}

const anything: StandardSchema<{ text: string }> = {
  '~standard': { version: 1, vendor: 'bench', validate: (value) => ({ value: value as { text: string } }) },
}
const things = stream('thing', { topic: 'bench.events', events: { Happened: state(anything) } })
const data = { text: 'x'.repeat(290) }
const payload = Buffer.from(JSON.stringify(data))

export const addBench: Bench = defineBench<Context>({
  name: 'add',
  summary: 'business transactions per second, with a plain insert and with outbox.add',
  unit: 'transactions/s',
  setup: async ({ quick }) => {
    const bench = await openOutboxBench()
    await bench.db.query('create table business (id bigint primary key, note text not null)')
    await bench.db.query('create table plain (like waybill.outbox including all)')
    return { bench, transactions: quick ? 200 : 2_000, next: 0 }
  },
  close: ({ bench }) => bench.close(),
  contenders: {
    'plain insert': async (context) =>
      await pace(context, async (tx, id) => {
        await tx.query(
          `insert into plain (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload, headers)
           values ($1::text::uuid, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::jsonb)`,
          [crypto.randomUUID(), 'bench.events', 'thing', id, 1, 'Happened', 1, 'application/json', payload, '{}'],
        )
      }),
    'add, version given': async (context) =>
      await pace(
        context,
        async (tx, id) => void (await context.bench.outbox.add(tx, things.Happened, id, data, { version: 1n })),
      ),
    'add, version taken': async (context) =>
      await pace(context, async (tx, id) => void (await context.bench.outbox.add(tx, things.Happened, id, data))),
  },
  bars: [
    {
      name: 'add, version given ÷ plain insert',
      target: 0.8,
      direction: 'at-least',
      of: (sample) => sample('add, version given') / sample('plain insert'),
    },
    {
      name: 'add, version taken ÷ plain insert',
      target: 0.7,
      direction: 'at-least',
      of: (sample) => sample('add, version taken') / sample('plain insert'),
    },
  ],
})

async function pace(context: Context, work: (tx: Tx, id: string) => Promise<void>): Promise<number> {
  const { bench, transactions } = context
  await empty(bench)
  const startedAt = performance.now()
  for (let i = 0; i < transactions; i += 1) {
    const id = (context.next += 1)
    await transaction(bench.db, async (tx) => {
      await tx.query('insert into business (id, note) values ($1, $2)', [id, 'paid'])
      await work(tx, `t${id}`)
    })
  }
  return (transactions / (performance.now() - startedAt)) * 1_000
}
