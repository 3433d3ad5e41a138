import { Socket } from 'node:net'

import { expect, test, vi } from 'vitest'

import { testDatabase } from '../../test/setup/test-database.ts'
import { createSignals } from '../core/signals.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { connect } from './connect.ts'
import { transaction } from './transaction/transaction.ts'

const database = await testDatabase()

test('a connection that breaks while it is idle is reported and replaced at the next use', async () => {
  const signals = createSignals()
  const lost: unknown[] = []
  signals.on('database.idle-connection-lost', ({ error }) => lost.push(error))
  // Straight to the server: behind a pooler it is the pooler that meets the loss.
  const db = connect({ url: database.directUrl, max: 1, signals })
  const pid = async (): Promise<unknown> => ((await db.query('select pg_backend_pid() as pid')).rows[0] as { pid: unknown }).pid
  const first = await pid()
  await database.pool.query('select pg_terminate_backend($1)', [first])
  await eventually(() => lost.length > 0)
  expect(await pid()).not.toBe(first)
  expect(await transaction(db, async () => 'works')).toBe('works')
  await db.close()
})

test('nothing is connected before the first statement, and the name is shown to operators', async () => {
  const db = connect({ url: database.directUrl, applicationName: 'lazy' })
  const seen = async (): Promise<number | null> =>
    (await database.pool.query(`select from pg_stat_activity where application_name = 'lazy'`)).rowCount
  expect(await seen()).toBe(0)
  await db.query('select 1')
  expect(await seen()).toBe(1)
  await db.close()
  await eventually(async () => (await seen()) === 0)
})

test('a server that cannot be reached is an error of the statement, not of the process', async () => {
  const db = connect({ url: 'postgres://nobody@127.0.0.1:1/nothing' })
  await expect(db.query('select 1')).rejects.toThrow(/ECONNREFUSED/)
  await expect(transaction(db, async () => 1)).rejects.toThrow(/ECONNREFUSED/)
  await db.close()
})

test('a connection that has nothing to say for a while is probed, so that a dead one is noticed', async () => {
  const probed = vi.spyOn(Socket.prototype, 'setKeepAlive')
  const db = connect({ url: database.directUrl })
  await db.query('select 1')
  await db.close()
  expect(probed.mock.calls).toEqual([[true, 10_000]])
  probed.mockRestore()
})
