/**
 * A consumer in a process of its own, which a test kills between two steps. Its broker is Postgres.
 */
import { z } from 'zod'
import { createConsumer } from '../../src/consumer/consumer.ts'
import { jsonCodec } from '../../src/core/encoding/codec.ts'
import { delta } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import { connect } from '../../src/postgres/connect.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createFailpoints, withFailpoints } from '../../src/testing/faults/failpoint.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'

const [url = '', schema = ''] = process.argv.slice(2)
const failpoints = createFailpoints()
/** What ends the process, and when. */
const deadly = { decoded: 665, handled: 666 }
const json = jsonCodec(z.object({ amount: z.number() }))
const codec: typeof json = {
  ...json,
  decode: (bytes, schemaVersion) => {
    const data = json.decode(bytes, schemaVersion)
    if ((data as { readonly amount?: number }).amount === deadly.decoded) process.kill(process.pid, 'SIGKILL')
    return data
  },
}
const accounts = stream('account', { topic: 'bank.events', events: { Deposited: delta(codec) } })
const db = connect({ url, max: 4 })

/** Failpoints stand around the statements of a batch, its COMMIT and its acks. */
const watched: Database = {
  query: (text, values) => db.query(text, values),
  attempt: async (options, work) => {
    await failpoints.hit('before begin')
    const result = await db.attempt(options, async (tx) => {
      const inner = withFailpoints(tx, {
        failpoints,
        places: [
          {
            name: 'after the inbox',
            method: 'query',
            when: 'after',
            match: (text) => /insert into \S+"inbox"/.test(String(text)),
          },
          { name: 'after the effect', method: 'query', when: 'after', match: (text) => String(text).includes('.effect') },
        ],
      })
      const value = await work(inner)
      await failpoints.hit('before commit')
      return value
    })
    await failpoints.hit('after commit')
    return result
  },
}
const transport = postgresTransport({ db, schema, leaseMs: 300 })
const consumer = createConsumer({
  db: watched,
  transport: {
    receive: (options) =>
      transport.receive({
        ...options,
        onDelivery: (delivery) =>
          options.onDelivery({
            message: delivery.message,
            lost: delivery.lost,
            nack: (delayMs) => delivery.nack(delayMs),
            ack: async () => {
              const outcome = await delivery.ack()
              await failpoints.hit('after ack')
              return outcome
            },
          }),
      }),
  },
  name: 'ledger',
  streams: [accounts],
  schema,
  lingerMs: 1,
  pollMs: 20,
  backoff: { firstMs: 1, maxMs: 5 },
  leaseMs: 1_000,
})
consumer.on(accounts.Deposited, async (event, { tx }) => {
  await tx.query(`insert into ${schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
    event.id,
    event.aggregateId,
    String(event.version),
  ])
  if (event.data.amount === deadly.handled) process.kill(process.pid, 'SIGKILL')
})
// A first connection may take long on a busy machine, and a service that begins without one ends.
await eventually(() => db.query('select 1'))
await consumer.run({ stopping: new AbortController().signal, aborting: new AbortController().signal })
