/**
 * Shows what is written and who can read it: `npm run example -- encryption`. It has a Postgres of its own, that is gone afterwards.
 */
import { randomBytes } from 'node:crypto'
import { connect, createCommands, createOutbox, migrate } from 'waybill'
import { createTestKit, startPostgres } from 'waybill/testing'
import { changeCustomer, createView, customerStream, customerTables, forgetCustomer } from './customers.ts'
import { dataKeys, dataKeyTable, localKeyPort } from './data-keys.ts'
import { sealedResponses } from './sealed.ts'

const postgres = await startPostgres()
const db = connect({ url: postgres.url })
const keyDb = connect({ url: postgres.url })
const say = (what: string, value: unknown): boolean => process.stdout.write(`${what.padEnd(34)} ${JSON.stringify(value)}\n`)
const first = async (text: string): Promise<unknown> => (await db.query(text)).rows[0]
try {
  await migrate(db, { schema: 'waybill', service: 'customers' })
  await db.query(`${dataKeyTable}; ${customerTables}`)
  const keys = dataKeys({ db: keyDb, port: localKeyPort(randomBytes(32)) })
  const customers = customerStream(keys)
  const outbox = createOutbox()
  const kit = createTestKit({ db, outbox })
  const view = createView({ db, transport: kit.transport }, customers)
  const commands = createCommands({ db, outbox, responses: sealedResponses(keys) })
  const change = changeCustomer(customers)
  const request = { principal: 'ann', requestId: '1', input: { id: 'c1', name: 'Ada', email: 'ada@example.com' } }

  say('The command is told', (await commands.run(change, request)).status)
  say('A repeat is told', await commands.run(change, request))
  say('The outbox has', await first(`select encode(substr(payload, 1, 24), 'hex') || '…' as payload from waybill.outbox`))
  say('The marker has', await first(`select left(response, 24) || '…' as response from waybill.command_marker`))
  await kit.drain([view])
  say('The view has', await first('select name, version from public.customer_view'))

  await forgetCustomer({ db, outbox, keys, customers }, 'c1')
  await kit.drain([view])
  say(
    'The view of a forgotten one has',
    await first('select name, version, deleted_at is not null as gone from public.customer_view'),
  )
} finally {
  await db.close()
  await keyDb.close()
  await postgres.stop()
}
