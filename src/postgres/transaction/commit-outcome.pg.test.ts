import { expect, test } from 'vitest'
import { startPostgres, type Postgres } from '../../testing/servers/postgres.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { connect } from '../connect.ts'
import type { Queryable } from '../query/database.ts'
import { transaction } from './transaction.ts'

async function idOf(tx: Queryable): Promise<string> {
  const { rows } = await tx.query('select pg_current_xact_id()::text as xid')
  return (rows[0] as { xid: string }).xid
}

test('on a standby that was promoted without ours, the commit of another under the same id is not taken for ours', async () => {
  // Copies of one cluster: the second stands where a standby stood that has received nothing of our transaction.
  await using primary = await startPostgres()
  await using standby = await startPostgres()
  const [before, after] = [connect({ url: primary.url }), connect({ url: standby.url })]
  let ours = ''
  const lost = transaction({ attempt: before.attempt, query: after.query }, async (tx) => {
    ours = await idOf(tx)
    await primary.stop('immediate')
    let others = ''
    while (BigInt(others) < BigInt(ours)) others = await transaction(after, idOf)
    expect(others).toBe(ours)
  })
  await expect(lost).rejects.toMatchObject({ code: 'COMMIT_UNKNOWN' })
  await Promise.all([before.close(), after.close()])
})

test.each([
  ['is started again', restart],
  ['recovers by itself', killBackend],
] as const)(
  'after a crash from which the server %s, another’s commit under the same id is not taken for ours',
  async (_how, crash) => {
    await using server = await startPostgres()
    const db = connect({ url: server.url })
    const lost = transaction(db, async (tx) => {
      const ours = await idOf(tx)
      await crash(server, tx, db)
      expect(await eventually(() => transaction(db, idOf))).toBe(ours)
    })
    await expect(lost).rejects.toMatchObject({ code: 'COMMIT_UNKNOWN' })
    await db.close()
  },
)

async function restart(server: Postgres): Promise<void> {
  await server.restart('immediate')
}

/** The server ends all its processes then, and recovers without a new start. */
async function killBackend(_server: Postgres, tx: Queryable, db: Queryable): Promise<void> {
  const recovered = async (): Promise<unknown> => (await db.query(`select stats_reset::text from pg_stat_bgwriter`)).rows
  const before = await recovered()
  const { rows } = await tx.query('select pg_backend_pid() as pid')
  process.kill((rows[0] as { pid: number }).pid, 'SIGKILL')
  await eventually(async () => expect(await recovered()).not.toEqual(before))
}

test('a commit that no synchronous standby has yet is not told as done when it is looked up', async () => {
  await using server = await startPostgres()
  const [db, admin] = [connect({ url: server.url }), connect({ url: `${server.url}?options=-c%20synchronous_commit%3Dlocal` })]
  const standbys = async (names: string): Promise<void> => {
    await admin.query(`alter system set synchronous_standby_names = '${names}'`)
    await admin.query('select pg_reload_conf()')
    await eventually(async () =>
      (await db.query('show synchronous_standby_names')).rows.some((row) => Object.values(row as object)[0] === names),
    )
  }
  const waiting = async (): Promise<readonly number[]> =>
    (await admin.query(`select pid from pg_stat_activity where wait_event = 'SyncRep'`)).rows.map(
      (row) => (row as { pid: number }).pid,
    )
  await db.query('create table note (id int)')
  await standbys('gone')
  let told: string | undefined
  const committing = transaction(db, (tx) => tx.query('insert into note values (1)')).then(() => (told = 'committed'))
  const [first] = await eventually(async () => ((await waiting()).length === 1 ? await waiting() : false))
  // The wait is cut off: the row is there for all to see, and on no standby.
  await admin.query('select pg_terminate_backend($1)', [first ?? 0])
  await eventually(async () => told !== undefined || (await waiting()).some((pid) => pid !== first))
  expect([told, (await admin.query('select id from note')).rows]).toEqual([undefined, [{ id: 1 }]])
  await standbys('')
  expect(await committing).toBe('committed')
  await Promise.all([db.close(), admin.close()])
})
