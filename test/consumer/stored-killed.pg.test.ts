import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { startChild } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'
import { consumerFixture, deposited } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const script = new URL('./stored-consumer-child.ts', import.meta.url)

test.each([
  'after the message is stored',
  'after lanes are taken',
  'after the effect',
  'after the messages are removed',
  'after commit',
])('killed %s, a consumer in stored mode leaves nothing lost, doubled or out of order behind', async (name) => {
  const fixture = await consumerFixture(db)
  const transport = postgresTransport({ db, schema: fixture.schema })
  await transport.subscribe('bank.events', 'ledger')
  const messages = [1, 2, 3, 4, 5].flatMap((version) => [deposited('x', version, version), deposited('y', version, version)])
  await transport.publish(messages, { signal: new AbortController().signal, maySend: () => true })
  await transport.close()
  await using first = startChild(script, { args: [database.url, fixture.schema], failpoint: { name, action: 'kill' } })
  await first.failpoint(name)
  expect(await first.exited).toMatchObject({ signal: 'SIGKILL' })
  await using _second = startChild(script, { args: [database.url, fixture.schema] })
  const done = async (): Promise<boolean> =>
    (await fixture.count('inbox')) === 10 &&
    (await fixture.count('inbox_message')) === 0 &&
    (await fixture.count('transport_delivery')) === 0
  await eventually(done)
  const effects = await fixture.query(
    'select aggregate_id as id, array_agg(version::int order by at) as versions from $schema.effect group by 1 order by 1',
  )
  expect(effects).toEqual(['x', 'y'].map((id) => ({ id, versions: [1, 2, 3, 4, 5] })))
})
