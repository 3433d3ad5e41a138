import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { startChild } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'
import type { OutgoingMessage } from '../../src/transport/port/transport.ts'
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
  await eventually(async () => (await fixture.count('inbox')) === 10 && (await fixture.count('transport_delivery')) === 0)
  const effects = await fixture.query(
    'select aggregate_id as id, array_agg(version::int order by at) as versions from $schema.effect group by 1 order by 1',
  )
  expect(effects).toEqual(['x', 'y'].map((id) => ({ id, versions: [1, 2, 3, 4, 5] })))
})

/** Starts consumers one after the other, each when the last has died, until `isDone`; the last one is ended. */
async function outlive(fixture: ConsumerFixture, isDone: () => Promise<boolean>): Promise<void> {
  for (let deaths = 0; ; deaths += 1) {
    expect(deaths).toBeLessThan(6)
    await using child = startChild(script, { args: [database.url, fixture.schema] })
    const done = eventually(isDone)
    const ended = await Promise.race([done.then(() => 'done'), child.exited.then(() => 'died')])
    if (ended === 'done') return
    done.catch(() => undefined)
  }
}

/** The amounts that end the process. */
const deadly = [
  ['handled', 666],
  ['decoded', 665],
] as const

test.each(deadly)(
  'an event that ends the process when it is %s is given up after three deaths, and its neighbours are applied',
  async (_when, amount) => {
    const fixture = await consumerFixture(db)
    await send(fixture, [deposited('bad', 1, amount), deposited('good', 1, 1), deposited('fine', 1, 1)])
    await outlive(fixture, async () => (await fixture.count('dead_letter', `reason = 'crashed'`)) === 1)
    // The last one may have been ended before its ack, so that the event comes again.
    await outlive(fixture, async () => (await fixture.count('inbox')) === 2)
    expect(await fixture.query('select aggregate_id as id from $schema.effect order by 1')).toEqual([
      { id: 'fine' },
      { id: 'good' },
    ])
  },
)

test.each(deadly)(
  'a redriven letter that still ends the process when it is %s is dead again after three deaths',
  async (_when, amount) => {
    const fixture = await consumerFixture(db)
    await send(fixture, [deposited('bad', 1, amount)])
    await outlive(
      fixture,
      async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('transport_delivery')) === 0,
    )
    await fixture.query(`update $schema.dead_letter set state = 'redriving'`)
    await outlive(fixture, async () => (await fixture.count('dead_letter', `state = 'dead'`)) === 1)
    expect(
      await fixture.query('select reason, attempts, redrives, jsonb_array_length(history) as lives from $schema.dead_letter'),
    ).toEqual([{ reason: 'crashed', attempts: 6, redrives: 1, lives: 2 }])
  },
)

test('a waiting message that ends the process is given up, and not the one that it is applied with', async () => {
  const fixture = await consumerFixture(db)
  await send(fixture, [{ ...deposited('x', 2, 666), orderingKey: 'early' }])
  await outlive(fixture, async () => (await fixture.count('inbox_message')) === 1)
  await send(fixture, [deposited('x', 1, 1), deposited('x', 3, 1)])
  await outlive(fixture, async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message')) === 1)
  expect(await fixture.query('select version::int, reason from $schema.dead_letter')).toEqual([{ version: 2, reason: 'crashed' }])
  expect(await fixture.query('select version::int from $schema.effect')).toEqual([{ version: 1 }])
})
