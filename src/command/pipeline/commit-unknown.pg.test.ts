/**
 * COMMIT whose answer never came: looked up before anything is said about it.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { z } from 'zod'
import { depositCommand, newSteps } from '../../../test/command/bank.ts'
import { commandSetup, heard } from '../../../test/command/command-setup.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { connect, type Connection } from '../../postgres/connect.ts'
import type { Database } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { command } from '../model/command.ts'
import { httpAnswer, rpcStatus } from '../http-status.ts'
import { isCommitReply, isCommitRequest, postgresFrames } from '../../testing/faults/postgres-frames.ts'
import { startFaultProxy, type FaultProxy } from '../../testing/faults/fault-proxy.ts'

const { database, bank, commandsWith, newAccount, newRequest } = await commandSetup()
let proxy: FaultProxy
let db: Connection

beforeAll(async () => {
  const { hostname, port } = new URL(database.directUrl)
  proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
  db = connect({ url: proxy.url(database.directUrl), max: 4 })
})
afterEach(() => proxy.heal())
afterAll(async () => {
  await db.close()
  await proxy.stop()
})

/** Waits take no time, and deadlines come as if they had. Only the patience with a silent connection is left as it is. */
function hastyClock(): Clock {
  let skippedMs = 0
  return {
    nowMs: () => Date.now(),
    monotonicMs: () => systemClock.monotonicMs() + skippedMs,
    sleep: async (ms, signal) => {
      if (ms > 20_000) return await systemClock.sleep(ms, signal)
      skippedMs += ms
      await turn()
    },
  }
}

const ask = () => ({ principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } })

test('when only the answer was lost, the caller gets the response of the run that committed', async () => {
  const { signals, all } = heard('transaction.unknown')
  const commands = commandsWith({ db, signals })
  const request = ask()
  proxy.arm({ name: 'answer lost', direction: 'toClient', on: { match: isCommitReply }, action: 'cut' })
  expect(await commands.run(depositCommand(), request)).toMatchObject({
    status: 'executed',
    response: { balance: 5 },
    attempts: 1,
  })
  expect(proxy.firings('answer lost')).toBe(1)
  expect(all).toMatchObject([{ outcome: 'committed' }])
  expect(await bank.effects(request.requestId)).toBe(1)
})

test('when COMMIT itself was lost, the command is executed again with the same plan', async () => {
  const steps = newSteps()
  const commands = commandsWith({ db })
  const request = ask()
  proxy.arm({ name: 'commit lost', direction: 'toServer', on: { match: isCommitRequest }, action: 'cut' })
  expect(await commands.run(depositCommand({ steps }), request)).toMatchObject({ status: 'executed', attempts: 2 })
  expect(proxy.firings('commit lost')).toBe(1)
  expect([steps.plans.get(request.requestId), steps.executes.get(request.requestId)]).toEqual([1, 2])
  expect(await bank.effects(request.requestId)).toBe(1)
})

test('when nobody can be asked, the caller is told to ask again, and then learns that it was committed', async () => {
  const request = ask()
  const commands = commandsWith({ db, clock: hastyClock() })
  const deposit = depositCommand({ store: 'response' })
  proxy.arm({
    name: 'database gone',
    direction: 'toClient',
    on: { match: (message) => isCommitReply(message) && (proxy.refuse(), true) },
    action: 'cut',
  })
  expect(await commands.run(deposit, request)).toMatchObject({ status: 'failed', code: 'UNAVAILABLE', retryable: true })
  expect(proxy.firings('database gone')).toBe(1)
  expect(await commands.run(deposit, request)).toMatchObject({ status: 'failed', code: 'UNAVAILABLE' })
  proxy.heal()
  expect(await commands.run(deposit, request)).toMatchObject({ status: 'replayed', response: { balance: 5 } })
  expect(await bank.effects(request.requestId)).toBe(1)
})

test.each([
  ['the transaction', /pg_xact_status|command_marker/],
  ['the marker', /command_marker/],
] as const)('when the database is silent about %s, the caller is told to ask again all the same', async (what, question) => {
  const name = `silent about ${what}`
  const silent: Database = {
    query: async (text, values) => {
      if (proxy.firings(name) === 0) return await db.query(text, values)
      return question.test(text) ? await new Promise(() => undefined) : { rows: [], rowCount: 0 }
    },
    attempt: db.attempt,
  }
  const request = ask()
  proxy.arm({ name, direction: 'toClient', on: { match: isCommitReply }, action: 'cut' })
  const outcome = await commandsWith({ db: silent, clock: hastyClock() }).run(depositCommand(), request)
  expect(outcome).toMatchObject({ status: 'failed', code: 'UNAVAILABLE', retryable: true })
  expect(await bank.effects(request.requestId)).toBe(1)
})

test('when nobody can be asked about a request without an id, nobody is told to repeat it', async () => {
  const { principal, input } = ask()
  const commands = commandsWith({ db, clock: hastyClock(), requestId: 'optional' })
  proxy.arm({
    name: 'database gone, no id',
    direction: 'toClient',
    on: { match: (message) => isCommitReply(message) && (proxy.refuse(), true) },
    action: 'cut',
  })
  const outcome = await commands.run(depositCommand(), { principal, input })
  expect(proxy.firings('database gone, no id')).toBe(1)
  expect(outcome).toMatchObject({ code: 'UNAVAILABLE', retryable: false, message: expect.stringContaining('no request id') })
  expect(httpAnswer(outcome)).toMatchObject({ status: 503, body: { retryable: false } })
  expect([httpAnswer(outcome).headers['retry-after'], rpcStatus(outcome)?.retryAfterMs]).toEqual([undefined, undefined])
  expect(await bank.balance(input.account)).toBe(5)
})

test('a command that was rolled back as often as it was tried is said to have changed nothing, with an id or without', async () => {
  const commands = commandsWith({ db, retries: 0, requestId: 'optional' })
  const { principal, requestId, input } = ask()
  const deposit = depositCommand()
  for (const request of [
    { principal, requestId, input },
    { principal, input },
  ]) {
    proxy.arm({ name: 'only commit lost', direction: 'toServer', on: { match: isCommitRequest }, action: 'cut' })
    expect(await commands.run(deposit, request)).toMatchObject({
      code: 'UNAVAILABLE',
      retryable: true,
      retryAfterMs: 1_000,
      message: expect.stringContaining('nothing was changed'),
    })
  }
  expect(await bank.balance(input.account)).toBe(0)
})

test('a transaction whose id the database has forgotten is known by its marker', async () => {
  const request = ask()
  const forgetful: typeof db = {
    ...db,
    query: async (text, values) =>
      text.includes('pg_xact_status') ? { rows: [{ status: null }], rowCount: 1 } : await db.query(text, values),
  }
  const commands = commandsWith({ db: forgetful })
  proxy.arm({ name: 'answer lost, id forgotten', direction: 'toClient', on: { match: isCommitReply }, action: 'cut' })
  expect(await commands.run(depositCommand(), request)).toMatchObject({ status: 'executed', response: { balance: 5 } })
  proxy.arm({ name: 'rejection kept, id forgotten', direction: 'toClient', on: { match: isCommitReply }, action: 'cut' })
  const refused = { ...ask(), input: { account: newAccount(), amount: -5 } }
  expect(await commands.run(depositCommand({ name: 'Refused', storeRejections: true }), refused)).toMatchObject({
    status: 'rejected',
    replayed: false,
  })
  expect(proxy.firings('rejection kept, id forgotten')).toBe(1)
  proxy.arm({ name: 'commit lost, id forgotten', direction: 'toServer', on: { match: isCommitRequest }, action: 'cut' })
  const other = ask()
  expect(await commands.run(depositCommand({ name: 'Other' }), other)).toMatchObject({ code: 'UNAVAILABLE' })
  expect(await bank.effects(other.requestId)).toBe(0)
})

test('without its marker, a request is not taken for committed, whatever is said of its transaction’s id', async () => {
  const gullible: typeof db = {
    ...db,
    query: async (text, values) =>
      text.includes('pg_xact_status') ? { rows: [{ status: 'committed' }], rowCount: 1 } : await db.query(text, values),
  }
  const request = ask()
  proxy.arm({ name: 'commit lost, id reused', direction: 'toServer', on: { match: isCommitRequest }, action: 'cut' })
  expect(await commandsWith({ db: gullible }).run(depositCommand(), request)).toMatchObject({ code: 'UNAVAILABLE' })
  expect(proxy.firings('commit lost, id reused')).toBe(1)
  expect(await bank.effects(request.requestId)).toBe(0)
})

test('another transaction whose end is not known is not taken for the command’s own', async () => {
  const steps = newSteps()
  const request = ask()
  const inner = (): Promise<unknown> => transaction(db, (tx) => tx.query('select 1'), { onUnknown: 'throw' })
  proxy.arm({ name: 'inner commit lost', direction: 'toServer', on: { match: isCommitRequest }, action: 'cut' })
  const outcome = await commandsWith({ db }).run(depositCommand({ steps, after: async () => void (await inner()) }), request)
  expect(outcome).toMatchObject({ status: 'failed', code: 'UNAVAILABLE', cause: { code: 'COMMIT_UNKNOWN' } })
  expect([proxy.firings('inner commit lost'), steps.executes.get(request.requestId)]).toEqual([1, 1])
  expect(await bank.effects(request.requestId)).toBe(0)
})

test('a connection that breaks before COMMIT leaves nothing, and is no failure of the command', async () => {
  const request = ask()
  const commands = commandsWith({ db })
  let isBroken = true
  const deposit = depositCommand({
    after: async (tx) => {
      if (isBroken) await tx.query('select pg_terminate_backend(pg_backend_pid())')
    },
  })
  expect(await commands.run(deposit, request)).toMatchObject({ code: 'UNAVAILABLE', retryable: true })
  isBroken = false
  expect(await commands.run(deposit, request)).toMatchObject({ status: 'executed' })
  expect(await bank.effects(request.requestId)).toBe(1)
})

test('a load that the database cannot finish is no failure of the command either', async () => {
  const request = ask()
  const commands = commandsWith({ db })
  const careful = command('Careful', {
    input: z.object({ account: z.string(), amount: z.number() }),
    load: async (reader) => void (await reader.query('select 1')),
    execute: async () => ({ done: true }),
  })
  for (const [name, direction, match] of [
    ['load not committed', 'toServer', isCommitRequest],
    ['load not answered', 'toClient', isCommitReply],
  ] as const) {
    proxy.arm({ name, direction, on: { match }, action: 'cut' })
    expect(await commands.run(careful, request)).toMatchObject({ code: 'UNAVAILABLE' })
    expect(proxy.firings(name)).toBe(1)
  }
  proxy.refuse()
  proxy.cut()
  expect(await commands.run(careful, request)).toMatchObject({ code: 'UNAVAILABLE' })
  proxy.heal()
  expect(await commands.run(careful, request)).toMatchObject({ status: 'executed' })
})
