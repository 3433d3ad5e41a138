/** Connections that break: the outcome is never guessed, and the pool stays whole. */
import { afterAll, beforeAll, expect, test } from 'vitest'

import { isWaybillError } from '../../src/core/errors.ts'
import { isConnectionLoss } from '../../src/postgres/query/sql-state.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { startFaultProxy, type FaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import { isCommitReply, isCommitRequest, isStatement, postgresFrames } from '../../src/testing/faults/postgres-frames.ts'
import { backendPid, notes, type AdapterContext, type AdapterHarness } from './adapter-harness.ts'

export function brokenConnections<Native>({ database, use }: AdapterContext<Native>): void {
  test('a connection that the server closed in the middle of a transaction is not used again', async () => {
    const { db, insertNote } = await use()
    let pid: unknown
    const work = transaction(db, async (tx) => {
      await insertNote(tx.native, 1, 'gone')
      pid = await backendPid(tx)
      await database.pool.query('select pg_terminate_backend($1)', [pid])
      await eventually(async () => {
        const { rowCount } = await database.pool.query('select from pg_stat_activity where pid = $1', [pid])
        return rowCount === 0
      })
      await tx.query('select 1')
    })
    await expect(work).rejects.toSatisfy(isConnectionLoss)
    expect(await notes(database)).toEqual([])
    // A pooler may be slower to close its side, and then the next use is refused as well.
    expect(await eventually(() => transaction(db, backendPid))).not.toBe(pid)
  })
}

export function lostCommits<Native>({ database, use }: AdapterContext<Native>): void {
  let proxy: FaultProxy
  beforeAll(async () => {
    const { hostname, port } = new URL(database.url)
    proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
  })
  afterAll(() => proxy.stop())
  const open = (): Promise<AdapterHarness<Native>> => use(proxy.url(database.url))
  let armed = 0
  const cutReply = (): string => {
    const name = `reply ${(armed += 1)}`
    proxy.arm({ name, direction: 'toClient', on: { match: isCommitReply }, action: 'cut' })
    return name
  }
  const cutRequest = (): string => {
    const name = `request ${(armed += 1)}`
    proxy.arm({ name, direction: 'toServer', on: { match: isCommitRequest }, action: 'cut' })
    return name
  }

  test('a COMMIT whose answer was lost is reported as unknown, with the id to look it up', async () => {
    const { db, insertNote } = await open()
    for (const [cut, status] of [
      [cutReply, 'committed'],
      [cutRequest, 'aborted'],
    ] as const) {
      const rule = cut()
      const work = transaction(db, (tx) => insertNote(tx.native, armed, status), { onUnknown: 'throw' })
      const error: unknown = await work.catch((thrown: unknown) => thrown)
      expect(isWaybillError(error, 'COMMIT_UNKNOWN')).toBe(true)
      expect(proxy.firings(rule)).toBe(1)
      const { xid } = (error as { details: { xid?: string } }).details
      await eventually(async () => {
        const { rows } = await database.pool.query('select pg_xact_status($1::text::xid8) as status', [xid])
        expect(rows).toEqual([{ status }])
      })
    }
    expect(await notes(database)).toMatchObject([{ text: 'committed' }])
  })

  test('looking finds that it took effect: the closure ran once and its result is returned', async () => {
    const { db, insertNote } = await open()
    const rule = cutReply()
    let runs = 0
    const result = await transaction(db, async (tx) => {
      runs += 1
      await insertNote(tx.native, 1, 'once')
      return 'done'
    })
    expect([result, runs, proxy.firings(rule), await notes(database)]).toEqual(['done', 1, 1, [{ id: 1, text: 'once' }]])
  })

  test('looking finds that it did not take effect: the closure is run again', async () => {
    const { db, insertNote } = await open()
    const rule = cutRequest()
    let runs = 0
    await transaction(db, (tx) => insertNote(tx.native, 1, `run ${(runs += 1)}`))
    expect([runs, proxy.firings(rule), await notes(database)]).toEqual([2, 1, [{ id: 1, text: 'run 2' }]])
  })

  test('a connection that breaks at BEGIN costs the pool nothing', async () => {
    const { db, insertNote } = await open()
    await transaction(db, (tx) => tx.query('select 1'))
    for (const round of [1, 2]) {
      const name = `begin ${(armed += 1)}`
      proxy.arm({ name, direction: 'toServer', on: { match: isStatement(/^\s*(begin|start transaction)/i) }, action: 'cut' })
      await expect(transaction(db, (tx) => insertNote(tx.native, round, 'never'))).rejects.toSatisfy(isConnectionLoss)
      expect(proxy.firings(name)).toBe(1)
    }
    await transaction(db, (tx) => insertNote(tx.native, 3, 'after'))
    expect(await notes(database)).toEqual([{ id: 3, text: 'after' }])
  })
}
