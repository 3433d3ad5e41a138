/**
 * The consumer's process: hundreds of readings in one transaction, a row for each business key, each effect once.
 */
import { businessKeyParts, connect, createConsumer, run } from 'waybill'
import { eventually } from 'waybill/testing'
import { readings } from './readings.ts'
import { openTransport } from './transport.ts'

const { DATABASE_URL = '' } = process.env
const db = connect({ url: DATABASE_URL })
const transport = openTransport()
const consumer = createConsumer({ db, transport, name: 'readings', streams: [readings] })
consumer.project(readings, {
  table: 'public.reading',
  key: ['meter', 'at'],
  keyOf: businessKeyParts,
  set: (event) => ({ value: event.data.value }),
})
consumer.on(readings.ReadingTaken, async (event, { tx }) => {
  await tx.query('insert into reading_effect (event_id) values ($1::text::uuid)', [event.id])
})

const stop = new AbortController()
process.once('SIGTERM', () => stop.abort())
// A first connection may take long on a busy machine, and a service that begins without one ends.
await eventually(() => db.query('select 1'))
process.send?.('ready')
await run([consumer], { signal: stop.signal })
await transport.close()
await db.close()
process.disconnect?.()
