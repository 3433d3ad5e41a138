/** No client goes back to its pool inside an open transaction, also when the driver took the ROLLBACK out of its queue. */
import { beforeAll, expect, test } from 'vitest'

import { notes } from '../../../test/contract/adapter-harness.ts'
import { adapters, type Opened } from '../../../test/contract/pools-of-one.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { startFaultProxy, type FaultProxy } from '../../testing/faults/fault-proxy.ts'
import { isUnanswered } from '../query/sql-state.ts'
import { transaction } from '../transaction/transaction.ts'

const database = await testDatabase()
beforeAll(() => database.pool.query('create table note (id int primary key, text text)'))

const insert = (id: number): string => `insert into note values (${id}, 'note') on conflict do nothing`

interface Broken extends Opened {
  readonly proxy: FaultProxy
}

/** A database behind a proxy, whose driver waits 200 ms for an answer. What opens it may take longer than that. */
async function openBroken(open: (url: string) => Opened | Promise<Opened>): Promise<Broken> {
  await database.pool.query('truncate note')
  const { hostname, port } = new URL(database.url)
  const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) } })
  const opened = await eventually(() => open(`${proxy.url(database.url)}?query_timeout=200`))
  await eventually(() => transaction(opened.db, (tx) => tx.query('select 1')))
  return { ...opened, proxy }
}

test.each(Object.entries(adapters))('%s does not wait for a server that never answers again', async (_name, open) => {
  const { db, close, proxy } = await openBroken(open)
  let stalled = false
  const failing = transaction(
    db,
    async (tx) => {
      proxy.stall('toClient')
      stalled = true
      await tx.query('select 2')
    },
    { statementTimeoutMs: 500 },
  )
  await expect(failing).rejects.toSatisfy(isUnanswered)
  expect(stalled).toBe(true)
  await proxy.stop()
  await close()
})

test.each(Object.entries(adapters))(
  '%s leaves nothing for the next one to commit when the server answers long after it was given up',
  async (_name, open) => {
    const { db, close, proxy } = await openBroken(open)
    let stalled = false
    const failing = transaction(
      db,
      async (tx) => {
        await tx.query(insert(1))
        proxy.stall('toClient')
        stalled = true
        await tx.query('select 2')
      },
      { statementTimeoutMs: 300, idleInTransactionTimeoutMs: 60_000 },
    )
    await expect(failing).rejects.toSatisfy(isUnanswered)
    expect(stalled).toBe(true)
    proxy.heal()
    await eventually(() => transaction(db, (tx) => tx.query(insert(2))))
    await close()
    await proxy.stop()
    expect(await notes(database)).toEqual([{ id: 2, text: 'note' }])
  },
)

test.each(Object.entries(adapters))('%s leaves no transaction open whose BEGIN is answered too late', async (_name, open) => {
  const { db, close, proxy } = await openBroken(open)
  proxy.stall('toServer')
  let ran = false
  const failing = transaction(db, async () => void (ran = true), { statementTimeoutMs: 300 })
  await expect(failing).rejects.toSatisfy(isUnanswered)
  proxy.heal()
  await eventually(() => db.query(insert(1)))
  // Under load the driver may give up a BEGIN once more.
  await eventually(() => expect(transaction(db, () => Promise.reject(new Error('refused')))).rejects.toThrow('refused'))
  await close()
  await proxy.stop()
  expect(ran).toBe(false)
  expect(await notes(database)).toEqual([{ id: 1, text: 'note' }])
})

test.each(Object.entries(adapters))(
  '%s leaves nothing for the next one to commit when the driver gave ROLLBACK up',
  async (_name, open) => {
    await database.pool.query('truncate note')
    const { db, close } = await eventually(() => open(`${database.url}?query_timeout=400`))
    const failing = transaction(db, async (tx) => {
      await tx.query(insert(1))
      // So slow that the driver does not wait for it, nor for a ROLLBACK behind it.
      await expect(tx.query('select pg_sleep(1)::text')).rejects.toSatisfy(isUnanswered)
      throw new Error('card declined')
    })
    // Not the error of the ROLLBACK.
    await expect(failing).rejects.toThrow('card declined')
    await eventually(() => transaction(db, (tx) => tx.query(insert(2))))
    await close()
    expect(await notes(database)).toEqual([{ id: 2, text: 'note' }])
  },
)
