import { expect, test } from 'vitest'
import { accounts, consumerFixture, deposited, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Consumer } from '../consumer.ts'
import { discardDeadLetters } from '../operate/discard.ts'
import { pauseConsumer, resumeConsumer } from '../operate/pause.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Begins wherever an aggregate begins, and writes down every deposit whose version is not in `broken`. */
function ledger(fixture: ConsumerFixture, broken: ReadonlySet<bigint>): Consumer {
  return fixture.consumer({ deltaStart: 'any', maxAttempts: 1 }).on(accounts.Deposited, async (event, { tx }) => {
    if (broken.has(event.version)) throw new Error('broken')
    await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(event.version)])
  })
}

const versions = async (fixture: ConsumerFixture): Promise<readonly number[]> =>
  (await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')).map(({ version }) => version)

const deposits = (...some: readonly number[]): ReturnType<typeof deposited>[] => some.map((version) => deposited('x', version, 1))

/** The first delta of an aggregate is dead, and two wait behind it. */
async function begunBadly(broken: ReadonlySet<bigint>): Promise<ConsumerFixture & { readonly stop: () => Promise<void> }> {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(ledger(fixture, broken))
  await fixture.publish(...deposits(7, 8, 9))
  await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message')) === 2)
  return { ...fixture, stop }
}

test('an aggregate whose first delta is discarded begins with what waited behind it', async () => {
  const fixture = await begunBadly(new Set([7n]))
  await discardDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await versions(fixture)).length === 2)
  await fixture.publish(...deposits(10))
  await eventually(async () => (await versions(fixture)).length === 3)
  await fixture.stop()
  expect(await versions(fixture)).toEqual([8, 9, 10])
})

test('what is delivered before anybody looked at what waits comes behind it', async () => {
  const fixture = await begunBadly(new Set([7n]))
  await fixture.stop()
  await discardDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await fixture.publish(...deposits(10))
  const stop = fixture.start(ledger(fixture, new Set()))
  await eventually(async () => (await versions(fixture)).length === 3)
  await stop()
  expect(await versions(fixture)).toEqual([8, 9, 10])
})

test('an aggregate begins with its first delta once that is redriven', async () => {
  const broken = new Set([7n])
  const fixture = await begunBadly(broken)
  broken.clear()
  await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await versions(fixture)).length === 3)
  await fixture.stop()
  expect(await versions(fixture)).toEqual([7, 8, 9])
})

test('an aggregate that was paused before its first event begins with the first that waits, and not behind one that fails', async () => {
  const fixture = await consumerFixture(db)
  const broken = new Set<bigint>()
  const stop = fixture.start(ledger(fixture, broken))
  const action = { db, schema: fixture.schema, consumer: 'catalog', aggregate: { type: 'account', id: 'x' }, actor: 'ada' }
  await eventually(async () => (await fixture.count('consumer')) === 1)
  await pauseConsumer(action)
  await fixture.publish(...deposits(7, 8).map((each, nth) => ({ ...each, orderingKey: `way ${nth}` })))
  await eventually(async () => (await fixture.count('inbox_message')) === 2)
  broken.add(7n)
  await resumeConsumer(action)
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  expect(await versions(fixture)).toEqual([])
  broken.clear()
  await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await versions(fixture)).length === 2)
  await stop()
  expect(await versions(fixture)).toEqual([7, 8])
})
