import { expect, test } from 'vitest'
import { openWorld } from '../../../test/outbox/world.ts'
import { retryNow } from '../../../test/outbox/relay-by-hand.ts'
import { firstOccurrences } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { relaySteps, type RelaySteps } from './steps.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('no pass reads more than its bytes, the first neither, and every aggregate goes out in order', async () => {
  const world = await openWorld(db)
  await db.query(`select ${world.outbox.tables.changeLanes.quoted}(8)`)
  const ids = ['a', 'b', 'c', 'd', 'e']
  const large = 'x'.repeat(20_000)
  for (const id of ids) await world.publish(id, large, 'small', large, 'y'.repeat(150_000), large)
  const bytes = 100_000
  const sums: number[] = []
  const read: RelaySteps['read'] = async (context, request) => {
    const found = await relaySteps.read(context, { ...request, limits: { ...request.limits, bytes } })
    const sum = found.reduce((total, { payload, headers }) => total + payload.byteLength + headers.length, 0)
    if (found.length > 1) sums.push(sum)
    return found
  }
  const relay = world.relay({ steps: { read } })
  world.refuse('b 1', 'c 2')
  await relay.pass()
  expect(sums).toHaveLength(1)
  world.refuse()
  await retryNow(world)
  await relay.drain()
  expect(Math.max(...sums)).toBeLessThanOrEqual(bytes)
  for (const id of ids) expect(firstOccurrences(world.broker, id)).toEqual([1, 2, 3, 4, 5])
  expect(await world.dispatch()).toEqual([])
  expect(await world.found()).toEqual([])
})
