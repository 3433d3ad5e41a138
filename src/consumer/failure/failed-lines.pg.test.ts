/** A line in which one failed comes again as a whole: nothing of the batch that is worked later overtakes it. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { accounts, consumerFixture, deposited, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { logFixture } from '../../../test/setup/log-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { newId } from '../../core/event/id.ts'
import { randomInt, seededRandom } from '../../core/service/random.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Begins wherever an aggregate begins, so whoever overtakes takes the other's effect away. `before` may throw. */
function ledger(
  fixture: ConsumerFixture,
  before: (event: { readonly aggregateId: string; readonly version: bigint }) => void,
  options: Partial<ConsumerOptions> = {},
): Consumer {
  return fixture.consumer({ deltaStart: 'any', ...options }).on(accounts.Deposited, async (event, { tx }) => {
    before(event)
    await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version) values ($1, $2)`, [
      event.aggregateId,
      String(event.version),
    ])
  })
}

/** All that there are come in one batch, also when they come again. */
const together = (batchSize: number): Partial<ConsumerOptions> => ({ batchSize, lingerMs: 10_000 })

/** Throws so many times at version 1. */
function failing(times: number): (event: { readonly version: bigint }) => void {
  let left = times
  return ({ version }) => {
    if (version === 1n && (left -= 1) >= 0) throw new Error('broken')
  }
}

const versions = async ({ query }: ConsumerFixture, id = 'x'): Promise<readonly number[]> => {
  const found = await query<{ version: number }>('select version::int from $schema.effect where aggregate_id = $1 order by at', [
    id,
  ])
  return found.map(({ version }) => version)
}

/** Versions 1 to n, some of them several times: the copies come anywhere behind the first. */
function withCopies(id: string, copies: readonly number[], seed: number): readonly OutgoingMessage[] {
  const random = seededRandom(seed)
  const firsts = copies.map((_, i) => deposited(id, i + 1, 1))
  const line = [...firsts]
  for (const [i, message] of firsts.entries())
    for (let n = 0; n < (copies[i] ?? 0); n += 1)
      line.splice(randomInt(random, line.indexOf(message) + 1, line.length), 0, message)
  return line
}

interface History {
  readonly seed: number
  /** How many copies there are of each version. */
  readonly copies: readonly number[]
  /** How often the handler of each fails: the first time in a batch, then alone. */
  readonly failures: readonly number[]
}

const histories: fc.Arbitrary<History> = fc.record({
  seed: fc.nat(1_000_000),
  copies: fc.array(fc.nat(2), { minLength: 2, maxLength: 5 }),
  failures: fc.array(fc.constantFrom(0, 2, 3), { minLength: 5, maxLength: 5 }),
})

test.each(['direct', 'stored'] as const)(
  'whatever comes twice and whatever fails, an aggregate has its effects once and in order, wherever it begins (%s)',
  async (mode) => {
    const fixture = await consumerFixture(db)
    const failuresLeft = new Map<string, number>()
    const stop = fixture.start(
      ledger(
        fixture,
        ({ aggregateId, version }) => {
          const left = failuresLeft.get(`${aggregateId} ${version}`) ?? 0
          failuresLeft.set(`${aggregateId} ${version}`, left - 1)
          if (left > 0) throw new Error('broken')
        },
        { mode, lingerMs: 20 },
      ),
    )
    let aggregates = 0
    const happens = async ({ seed, copies, failures }: History): Promise<void> => {
      const id = `x${(aggregates += 1)}`
      for (const [i, times] of failures.entries()) failuresLeft.set(`${id} ${i + 1}`, times)
      await fixture.publish(...withCopies(id, copies, seed))
      await eventually(async () => expect(await versions(fixture, id)).toEqual(copies.map((_, i) => i + 1)))
    }
    await fc.assert(fc.asyncProperty(histories, happens), { numRuns: 12, endOnFailure: true })
    await stop()
    expect(await fixture.count('dead_letter')).toBe(0)
  },
)

test('a copy of an event is not applied before one that failed in front of it', async () => {
  const fixture = await consumerFixture(db)
  const copied = deposited('x', 2, 1, { event_id: newId() })
  await fixture.publish(deposited('x', 1, 1), copied, copied)
  // In its batch, and alone.
  const stop = fixture.start(ledger(fixture, failing(2), together(3)))
  await eventually(async () => expect(await versions(fixture)).toEqual([1, 2]))
  await stop()
})

test('an event that came twice in one batch is charged once for it', async () => {
  const fixture = await consumerFixture(db)
  const copied = deposited('x', 1, 1, { event_id: newId() })
  await fixture.publish(copied, copied)
  const isFirstTime = (): boolean => fixture.broker.deliveries.length === 2
  const consumer = ledger(
    fixture,
    () => {
      if (isFirstTime()) throw new Error('broken')
    },
    // No copy comes again before both were looked at.
    { ...together(2), backoff: { firstMs: 500, maxMs: 500 } },
  )
  const stop = fixture.start(consumer)
  await eventually(async () => expect(await versions(fixture)).toEqual([1]))
  await stop()
  expect(fixture.heard('consumer.failed').map(({ attempts }) => attempts)).toEqual([1])
})

test('an event that ended processes is not given up before one that failed in front of it', async () => {
  const fixture = await consumerFixture(db)
  const deadly = deposited('x', 2, 1)
  await fixture.query(
    `insert into $schema.delivery_attempt (consumer, generation, event_id, unfinished) values ('catalog', 1, $1::uuid, 3)`,
    [deadly.attributes['event_id'] ?? ''],
  )
  await fixture.publish(deposited('x', 1, 1), deadly)
  const stop = fixture.start(ledger(fixture, failing(1), together(2)))
  await eventually(() => fixture.heard('consumer.dead').length === 1)
  expect(await versions(fixture)).toEqual([1])
  await stop()
  expect(await fixture.query('select version::int, reason, attempts from $schema.dead_letter')).toEqual([
    { version: 2, reason: 'crashed', attempts: 3 },
  ])
})

test('in a log, a copy behind one that failed comes again with its partition, and no batch is refused for it', async () => {
  const w = await logFixture(db)
  const copied = deposited('x', 2, 1, { event_id: newId() })
  w.log.append('0', [deposited('x', 1, 1), copied, copied])
  const stop = w.start(ledger(w, failing(2), { ...together(3), streams: [accounts], transport: w.log, offsets: 'postgres' }))
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => expect(await w.offsets()).toEqual(['0 3']))
  await stop()
  expect(await versions(w)).toEqual([1, 2])
  expect(w.heard('consumer.retried')).toEqual([])
})
