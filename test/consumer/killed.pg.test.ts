import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/from-pg.ts'
import { startChild } from '../../src/testing/child.ts'
import { eventually } from '../../src/testing/eventually.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'
import type { OutgoingMessage } from '../../src/transport/transport.ts'
import { consumerFixture, deposited, type ConsumerFixture } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const script = new URL('./killed-consumer.ts', import.meta.url)

async function send(fixture: ConsumerFixture, messages: readonly OutgoingMessage[]): Promise<void> {
  const transport = postgresTransport({ db, schema: fixture.schema })
  await transport.subscribe('bank.events', 'ledger')
  await transport.publish(messages, { signal: new AbortController().signal, maySend: () => true })
  await transport.close()
}

const places = ['before begin', 'after the inbox', 'after the effect', 'before commit', 'after commit', 'after ack']

test.each(places)('killed %s, a consumer leaves nothing lost, doubled or out of order behind', async (name) => {
  const fixture = await consumerFixture(db)
  await send(
    fixture,
    [1, 2, 3, 4, 5].flatMap((version) => [deposited('x', version, version), deposited('y', version, version)]),
  )
  await using first = startChild(script, { args: [database.url, fixture.schema], failpoint: { name, action: 'kill' } })
  await first.failpoint(name)
  expect(await first.exited).toMatchObject({ signal: 'SIGKILL' })
  await using _second = startChild(script, { args: [database.url, fixture.schema] })
  await eventually(async () => (await fixture.count('inbox')) === 10 && (await fixture.count('transport_delivery')) === 0, {
    timeoutMs: 40_000,
  })
  const effects = await fixture.query(
    'select aggregate_id as id, array_agg(version::int order by at) as versions from $schema.effect group by 1 order by 1',
  )
  expect(effects).toEqual(['x', 'y'].map((id) => ({ id, versions: [1, 2, 3, 4, 5] })))
})

test('an event whose handler ends the process is given up after three deaths, and its neighbours are applied', async () => {
  const fixture = await consumerFixture(db)
  await send(fixture, [deposited('bad', 1, 666), deposited('good', 1, 1), deposited('fine', 1, 1)])
  for (let deaths = 1; ; deaths += 1) {
    await using child = startChild(script, { args: [database.url, fixture.schema] })
    const buried = eventually(async () => (await fixture.count('dead_letter', `reason = 'crashed'`)) === 1, { timeoutMs: 30_000 })
    const ended = await Promise.race([buried.then(() => 'buried'), child.exited.then(() => 'died')])
    if (ended === 'buried') break
    buried.catch(() => undefined)
    expect(deaths).toBeLessThan(6)
  }
  await using _last = startChild(script, { args: [database.url, fixture.schema] })
  await eventually(async () => (await fixture.count('inbox')) === 2)
  expect(await fixture.query('select aggregate_id as id from $schema.effect order by 1')).toEqual([
    { id: 'fine' },
    { id: 'good' },
  ])
})
