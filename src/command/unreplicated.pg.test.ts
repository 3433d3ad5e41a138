import { expect, test } from 'vitest'

import { depositCommand, openBank } from '../../test/command/bank.ts'
import { connect } from '../postgres/connect.ts'
import { startPostgres } from '../testing/servers/postgres.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createCommands } from './commands.ts'

test('a repeat is not answered by a commit that no synchronous standby has yet', async () => {
  await using server = await startPostgres()
  const [db, admin] = [connect({ url: server.url }), connect({ url: `${server.url}?options=-c%20synchronous_commit%3Dlocal` })]
  const bank = await openBank(db)
  const deposit = depositCommand({ store: 'response' })
  // As two processes: one alone would know that the first still looks for its end.
  const run = (): Promise<string> =>
    createCommands({ db, outbox: bank.outbox })
      .run(deposit, { principal: 'ada', requestId: 'one', input: { account: 'a', amount: 1 } })
      .then(({ status }) => status)
  const standbys = async (names: string): Promise<void> => {
    await admin.query(`alter system set synchronous_standby_names = '${names}'`)
    await admin.query('select pg_reload_conf()')
    await eventually(async () => JSON.stringify((await db.query('show synchronous_standby_names')).rows).includes(`"${names}"`))
  }
  const waiting = async (): Promise<readonly number[]> =>
    (await admin.query(`select pid from pg_stat_activity where wait_event = 'SyncRep'`)).rows.map(
      (row) => (row as { pid: number }).pid,
    )
  await standbys('gone')
  const first = run()
  const [pid = 0] = await eventually(async () => ((await waiting()).length === 1 ? await waiting() : false))
  // The wait is cut off: the marker is there for all to see, and on no standby.
  await admin.query('select pg_terminate_backend($1)', [pid])
  await eventually(async () => !(await waiting()).includes(pid))
  let told: string | undefined
  const repeat = run().then((status) => (told = status))
  // The look-up of the first, and the repeat.
  await eventually(async () => told !== undefined || (await waiting()).length >= 2)
  expect(told).toBeUndefined()
  await standbys('')
  expect([await first, await repeat]).toEqual(['executed', 'replayed'])
  await Promise.all([db.close(), admin.close()])
})
