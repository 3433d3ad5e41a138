import { describe, expect, test } from 'vitest'
import { opened, openWorld } from '../../../test/outbox/world.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { relaySteps, type RelaySteps } from './steps.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

describe('a lane whose row somebody keeps locked', () => {
  const timedOut = Object.assign(new Error('canceling statement due to lock timeout'), { code: '55P03' })

  test.each(['confirm', 'settle'] as const)('is given up by a %s alone: the other lanes are written', async (step) => {
    const world = await openWorld(db)
    const { lane, changeLanes } = world.outbox.tables
    await db.query(`select ${changeLanes.quoted}(64)`)
    const ids = ['a', 'b', 'c', 'd', 'e']
    if (step === 'settle') world.refuse(...ids.map((id) => `${id} 1`))
    for (const id of ids) await world.publish(id, 'one')
    const stuck = (await world.row('b 1')).lane
    const asked: number[] = []
    const impatient =
      <Context, Work extends { readonly lanes: readonly { readonly lane: number }[] }>(
        real: (context: Context, work: Work) => Promise<readonly number[]>,
      ) =>
      (context: Context, work: Work): Promise<readonly number[]> => {
        asked.push(work.lanes.length)
        return work.lanes.some((each) => each.lane === stuck) ? Promise.reject(timedOut) : real(context, work)
      }
    const steps = step === 'confirm' ? { confirm: impatient(relaySteps.confirm) } : { settle: impatient(relaySteps.settle) }
    const relay = world.relay({ steps, backoffMs: 600_000 })
    await relay.leases.rebalance()
    const sitting = await opened(db, (tx) => tx.query(`select from ${lane.quoted} where lane = $1 for update`, [stuck]))
    try {
      await relay.pass()
    } finally {
      await sitting.commit()
    }
    expect(asked).toEqual([5, 4])
    expect(relay.leases.held()).toHaveLength(63)
    expect(relay.leases.held().map((each) => each.lane)).not.toContain(stuck)
    const left = await world.dispatch()
    expect(left.filter((row) => row['lane'] === stuck).map((row) => row['state'])).toEqual([0])
    const others = left.filter((row) => row['lane'] !== stuck).map((row) => row['state'])
    expect(others).toEqual(step === 'confirm' ? [] : [1, 1, 1, 1])
  })

  test('is waited for once, not once for every row', async () => {
    const world = await openWorld(db)
    world.refuse('a 1', 'b 1', 'c 1')
    for (const id of ['a', 'b', 'c']) await world.publish(id, 'one')
    const refused = Object.assign(new Error('invalid byte sequence'), { code: '22021' })
    let calls = 0
    const settle: RelaySteps['settle'] = () => {
      calls += 1
      return Promise.reject(calls === 1 ? refused : timedOut)
    }
    await expect(world.relay({ steps: { settle } }).pass()).rejects.toThrow('lock timeout')
    expect(calls).toBe(2)
  })
})
