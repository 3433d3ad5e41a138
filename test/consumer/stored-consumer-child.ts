/**
 * A consumer in stored mode in a process of its own, which a test kills between two steps. Its broker is Postgres.
 */
import { z } from 'zod'
import { createConsumer } from '../../src/consumer/consumer.ts'
import { delta } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import { connect } from '../../src/postgres/connect.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createFailpoints, withFailpoints, type FailpointPlace } from '../../src/testing/faults/failpoint.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'

const [url = '', schema = ''] = process.argv.slice(2)
const failpoints = createFailpoints()
const accounts = stream('account', { topic: 'bank.events', events: { Deposited: delta(z.object({ amount: z.number() })) } })
const db = connect({ url, max: 6 })

const after = (name: string, part: string): FailpointPlace => ({
  name,
  method: 'query',
  when: 'after',
  match: (text) => String(text).includes(part),
})
const outside = withFailpoints(
  { query: db.query.bind(db) },
  {
    failpoints,
    places: [after('after the message is stored', 'with ordinality as i'), after('after lanes are taken', 'with free as')],
  },
)
const watched: Database = {
  query: (text, values) => outside.query(text, values),
  attempt: async (options, work) => {
    const result = await db.attempt(options, async (tx) => {
      const places = [after('after the effect', '.effect'), after('after the messages are removed', 'with gone as')]
      return await work(withFailpoints(tx, { failpoints, places }))
    })
    await failpoints.hit('after commit')
    return result
  },
}
const consumer = createConsumer({
  db: watched,
  transport: postgresTransport({ db, schema, leaseMs: 300 }),
  name: 'ledger',
  streams: [accounts],
  schema,
  mode: 'stored',
  leaseMs: 500,
  lingerMs: 1,
  pollMs: 20,
})
consumer.on(accounts.Deposited, async (event, { tx }) => {
  await tx.query(`insert into ${schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
    event.id,
    event.aggregateId,
    String(event.version),
  ])
})
// A first connection may take long on a busy machine, and a service that begins without one ends.
await eventually(() => db.query('select 1'))
await consumer.run({ stopping: new AbortController().signal, aborting: new AbortController().signal })
