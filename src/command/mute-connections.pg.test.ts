/** No command waits for ever for a connection that falls silent: its caller is told, and the same request again has its effect once. */
import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { depositCommand } from '../../test/command/bank.ts'
import { commandSetup, gate, heard } from '../../test/command/command-setup.ts'
import type { Database } from '../postgres/query/database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { startFaultProxy, type Direction } from '../testing/faults/fault-proxy.ts'
import { isCommitReply, isCommitRequest, isStatement, postgresFrames } from '../testing/faults/postgres-frames.ts'
import { memoryCache } from './cache/memory.ts'
import { createMarkerCleanup } from './marker-cleanup.ts'

const { database, bank, commandsWith, newAccount, newRequest } = await commandSetup()
const { hostname, port } = new URL(database.directUrl)
const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
afterAll(() => proxy.stop())

interface Place {
  readonly direction: Direction
  readonly match: (message: Buffer) => boolean
}

const before = (statement: RegExp): Place => ({ direction: 'toServer', match: isStatement(statement) })

/** A database of a few connections, one of which is silent from `place` on. */
function muteFrom(name: string, { direction, match }: Place, max = 10): { readonly db: Database; close(): Promise<void> } {
  proxy.arm({ name, direction, on: { match }, action: 'stall' })
  const pool = new pg.Pool({ connectionString: proxy.url(database.directUrl), max })
  pool.on('error', () => undefined)
  const close = async (): Promise<void> => {
    proxy.cut()
    await pool.end()
  }
  return { db: fromPg(pool), close }
}

const places: Record<string, Place> = {
  'at BEGIN': before(/^\s*begin/),
  'at its marker': before(/claim_command/),
  'at its effect': before(/insert into \S*ledger/),
  'at COMMIT': { direction: 'toServer', match: isCommitRequest },
  'after COMMIT': { direction: 'toClient', match: isCommitReply },
}

test.each(Object.entries(places))(
  'a command whose connection falls silent %s ends, and repeated has one effect',
  async (name, place) => {
    const clock = createFakeClock()
    const { db, close } = muteFrom(name, place)
    const commands = commandsWith({ db, clock })
    const deposit = depositCommand({ store: 'response' })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 1 } }
    const asked = commands.run(deposit, request)
    await proxy.fired(name)
    await clock.advance(60_000)
    expect(await asked).toMatchObject({ status: 'failed', code: 'UNAVAILABLE', retryable: true })
    // What the server does by itself when a transaction was idle for too long.
    await database.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()`,
    )
    expect(await commands.run(deposit, request)).toMatchObject({ status: name === 'after COMMIT' ? 'replayed' : 'executed' })
    await close()
    expect(await bank.effects(request.requestId)).toBe(1)
  },
)

test('a pending entry that is looked up on a connection that falls silent is UNAVAILABLE, not for ever', async () => {
  const clock = createFakeClock()
  const cache = memoryCache()
  const { db, close } = muteFrom('marker', before(/from \S*command_marker/))
  const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 1 } }
  const { opened, open } = gate()
  const deposit = depositCommand({ before: () => opened })
  const first = commandsWith({ cache }).run(deposit, request)
  const asked = commandsWith({ db, cache, clock }).run(deposit, request)
  await proxy.fired('marker')
  await clock.advance(60_000)
  expect(await asked).toMatchObject({ status: 'failed', code: 'UNAVAILABLE' })
  open()
  expect(await first).toMatchObject({ status: 'executed' })
  await close()
})

test('whose the cache is, asked on a connection that falls silent, is given up with it: the pool is not a connection short', async () => {
  const clock = createFakeClock()
  const { db, close } = muteFrom('scope', before(/deployment/), 1)
  const commands = commandsWith({ db, cache: memoryCache(), clock })
  const deposit = depositCommand()
  const newDeposit = () => ({ principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 1 } })
  const first = commands.run(deposit, newDeposit())
  await proxy.fired('scope')
  await clock.advance(5_000)
  expect(await first).toMatchObject({ status: 'executed' })
  expect(await commands.run(deposit, newDeposit())).toMatchObject({ status: 'executed' })
  await close()
})

test('who asks again is told that it was committed, also if the connection for its token falls silent', async () => {
  const clock = createFakeClock()
  const { db, close } = muteFrom('token', before(/join \S*aggregate_version/))
  const deposit = depositCommand()
  const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 1 } }
  expect(await commandsWith().run(deposit, request)).toMatchObject({ status: 'executed' })
  const asked = commandsWith({ db, clock }).run(deposit, request)
  await proxy.fired('token')
  await clock.advance(60_000)
  expect(await asked).toMatchObject({ status: 'failed', code: 'ALREADY_COMMITTED', token: undefined })
  await close()
})

test('a clean-up whose connection falls silent fails, and the next one does its work', async () => {
  const clock = createFakeClock()
  await database.pool.query(
    `insert into waybill.command_marker (principal, request_id, command, fingerprint, created_at)
     values ('ann', 'old', 'Old', '\\x00', clock_timestamp() - interval '1 day')`,
  )
  const { signals, all } = heard('command.cleaned')
  const { db, close } = muteFrom('clean-up', before(/from \S*expire_markers/))
  const cleanup = createMarkerCleanup({ db, clock, signals })
  const never = new AbortController().signal
  const failure = cleanup.pass(never).catch((error: unknown) => error)
  await proxy.fired('clean-up')
  await clock.advance(400_000)
  expect(await failure).toMatchObject({ code: 'UNAVAILABLE' })
  await cleanup.pass(never)
  await close()
  expect(all.map(({ deleted }) => deleted)).toEqual([1])
})
