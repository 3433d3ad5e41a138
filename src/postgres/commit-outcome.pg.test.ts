import { expect, test } from 'vitest'
import { systemClock } from '../core/clock.ts'
import { startPostgres } from '../testing/embedded-postgres.ts'
import { eventually } from '../testing/eventually.ts'
import { connect } from './connect.ts'
import { commitOutcome } from './commit-outcome.ts'
import type { Queryable } from './database.ts'
import { transaction } from './transaction.ts'

async function idOf(tx: Queryable): Promise<string> {
  const { rows } = await tx.query('select pg_current_xact_id()::text as xid')
  return (rows[0] as { xid: string }).xid
}

test('after a crash of the server, the commit of another under the same id is not taken for ours', async () => {
  await using server = await startPostgres()
  const db = connect({ url: server.url })
  await db.query('create table t (n int)')
  const beganAtMs = systemClock.monotonicMs()
  let ours = ''
  const lost = transaction(
    db,
    async (tx) => {
      ours = await idOf(tx)
      await server.restart('immediate')
    },
    { onUnknown: 'throw' },
  )
  await expect(lost).rejects.toThrow(/COMMIT/)
  const others = await eventually(() =>
    transaction(db, async (tx) => {
      await tx.query('insert into t values (1)')
      return await idOf(tx)
    }),
  )
  expect(others).toBe(ours)
  expect(await commitOutcome(db, ours, { clock: systemClock, beganAtMs })).toBe('unknown')
  await db.close()
})
