import { describe, expect, test } from 'vitest'
import { depositCommand } from '../../test/command/bank.ts'
import { commandSetup, gate, heard } from '../../test/command/command-setup.ts'
import { createTokens } from '../core/event/token.ts'
import { connect } from '../postgres/connect.ts'
import type { Database } from '../postgres/query/database.ts'
import { createCommands } from './commands.ts'
import { memoryCache } from './cache/memory.ts'

const { database, db, bank, commandsWith, newAccount, newRequest } = await commandSetup()

describe('a request that is repeated', () => {
  test('takes effect once; without a stored response a repeat learns that it was committed, and how to read the state', async () => {
    const commands = commandsWith()
    const deposit = depositCommand()
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    const first = await commands.run(deposit, request)
    expect(first).toMatchObject({ status: 'executed', response: { balance: 5 }, attempts: 1 })
    expect(createTokens().decode((first as { token: string }).token)).toEqual({
      aggregateType: 'account',
      aggregateId: request.input.account,
      version: 1n,
    })
    await commands.run(deposit, { ...request, requestId: newRequest() })
    const repeat = await commands.run(deposit, request)
    expect(repeat).toMatchObject({ status: 'failed', code: 'ALREADY_COMMITTED', retryable: false })
    expect(createTokens().decode((repeat as { token: string }).token).version).toBe(2n)
    expect(await bank.effects(request.requestId)).toBe(1)
  })

  test('gets the first response and token again where they are stored, although the state has moved on', async () => {
    const commands = commandsWith()
    const deposit = depositCommand({ store: 'response' })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    const first = await commands.run(deposit, request)
    await commands.run(deposit, { ...request, requestId: newRequest() })
    const { response, token } = first as { response: unknown; token: string }
    expect(await commands.run(deposit, request)).toEqual({ status: 'replayed', response, token, from: 'marker' })
    expect(await bank.balance(request.input.account)).toBe(10)
  })

  test('is refused with another input or another command; the order of keys does not matter, and principals do not meet', async () => {
    const commands = commandsWith()
    const deposit = depositCommand({ store: 'response' })
    const other = depositCommand({ name: 'Other' })
    const requestId = newRequest()
    const account = newAccount()
    await commands.run(deposit, { principal: 'ann', requestId, input: { account, amount: 5 } })
    expect(await commands.run(deposit, { principal: 'ann', requestId, input: { amount: 5, account } })).toMatchObject({
      status: 'replayed',
    })
    expect(await commands.run(deposit, { principal: 'ann', requestId, input: { account, amount: 6 } })).toMatchObject({
      code: 'KEY_REUSED',
    })
    expect(await commands.run(other, { principal: 'ann', requestId, input: { account, amount: 5 } })).toMatchObject({
      code: 'KEY_REUSED',
    })
    expect(await commands.run(deposit, { principal: 'bob', requestId, input: { account, amount: 5 } })).toMatchObject({
      status: 'executed',
    })
    expect(await bank.balance(account)).toBe(10)
  })

  test('while the first is under way is told so within the lock wait, and holds no connection longer', async () => {
    const entered = gate()
    const leave = gate()
    const deposit = depositCommand({ before: async () => (entered.open(), await leave.opened) })
    const commands = commandsWith({ markerLockMs: 50 })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    const first = commands.run(deposit, request)
    await entered.opened
    expect(await commands.run(deposit, request)).toMatchObject({ code: 'IN_PROGRESS', retryable: true, retryAfterMs: 1_000 })
    leave.open()
    expect(await first).toMatchObject({ status: 'executed' })
  })

  test('waits for the winner when it is told to, and gets its response', async () => {
    const entered = gate()
    const leave = gate()
    const deposit = depositCommand({ store: 'response', before: async () => (entered.open(), await leave.opened) })
    const commands = commandsWith({ markerLockMs: 20, cache: memoryCache() })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    const first = commands.run(deposit, request)
    await entered.opened
    const second = commands.run(deposit, { ...request, waitForWinnerMs: 60_000 })
    expect(await commands.run(deposit, request)).toMatchObject({ code: 'IN_PROGRESS' })
    leave.open()
    const { response } = (await first) as { response: unknown }
    expect(await second).toMatchObject({ status: 'replayed', response })
  })

  test('cannot be told to wait for what is no time', async () => {
    const entered = gate()
    const leave = gate()
    const deposit = depositCommand({ before: async () => (entered.open(), await leave.opened) })
    const commands = commandsWith({ markerLockMs: 20 })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    const first = commands.run(deposit, request)
    await entered.opened
    for (const waitForWinnerMs of [Number.NaN, -1, 0.5, 60_001, Infinity, null as never, '5' as never])
      await expect(commands.run(deposit, { ...request, waitForWinnerMs })).rejects.toMatchObject({
        code: 'INVALID_OPTION',
        message: expect.stringContaining('waitForWinnerMs: must be a whole number from 0 to 60000'),
      })
    leave.open()
    expect(await first).toMatchObject({ status: 'executed' })
  })

  test('of many at once one takes effect, and the others are told the truth', async () => {
    const commands = commandsWith({ markerLockMs: 2_000 })
    const deposit = depositCommand({ store: 'response' })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => commands.run(deposit, request)))
    expect(outcomes.filter(({ status }) => status === 'executed')).toHaveLength(1)
    expect(outcomes.every((each) => each.status !== 'failed' || each.code === 'IN_PROGRESS')).toBe(true)
    expect(await bank.effects(request.requestId)).toBe(1)
  })

  test('after a run that was rolled back is a new one: nothing of it was kept', async () => {
    let fails = true
    const deposit = depositCommand({
      after: async () => {
        if (fails) throw new Error('the disk of the caller is full')
      },
    })
    const commands = commandsWith({ cache: memoryCache() })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    await expect(commands.run(deposit, request)).rejects.toThrow('the disk of the caller is full')
    expect(await bank.effects(request.requestId)).toBe(0)
    fails = false
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'executed' })
  })

  test('whose response is too large to keep is told that it was committed', async () => {
    const { signals, all } = heard('command.response-dropped')
    const commands = commandsWith({ maxResponseBytes: 10, signals, cache: memoryCache() })
    const deposit = depositCommand({ store: 'response' })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'executed' })
    expect(await commands.run(deposit, request)).toMatchObject({ code: 'ALREADY_COMMITTED' })
    expect(all).toMatchObject([{ command: 'Deposit', maxBytes: 10 }])
  })
})

describe('a rejection', () => {
  const request = (account: string) => ({ principal: 'ann', requestId: newRequest(), input: { account, amount: -5 } })

  test('leaves nothing behind by default, so that a repeat is decided anew', async () => {
    const commands = commandsWith({ cache: memoryCache() })
    const deposit = depositCommand()
    const asked = request(newAccount())
    expect(await commands.run(deposit, asked)).toEqual({
      status: 'rejected',
      reason: 'not-enough',
      details: { have: 0 },
      replayed: false,
    })
    await commands.run(deposit, { principal: 'ann', requestId: newRequest(), input: { account: asked.input.account, amount: 5 } })
    expect(await commands.run(deposit, asked)).toMatchObject({ status: 'executed', response: { balance: 0 } })
  })

  test.each([false, true])('is kept by choice, with nothing of what came before it (cache: %s)', async (cached) => {
    const commands = commandsWith(cached ? { cache: memoryCache() } : {})
    const deposit = depositCommand({
      storeRejections: true,
      before: async (tx) => void (await tx.query(`insert into account (id, balance) values ('trace', 1) on conflict do nothing`)),
    })
    const asked = request(newAccount())
    expect(await commands.run(deposit, asked)).toMatchObject({ status: 'rejected', replayed: false })
    await commands.run(depositCommand({ name: 'Fill' }), {
      principal: 'ann',
      requestId: newRequest(),
      input: { account: asked.input.account, amount: 50 },
    })
    expect(await commands.run(deposit, asked)).toEqual({
      status: 'rejected',
      reason: 'not-enough',
      details: { have: 0 },
      replayed: true,
    })
    expect(await bank.balance('trace')).toBe(0)
    expect(await bank.effects(asked.requestId)).toBe(0)
  })

  test('that is to be kept is not told if the same request has taken effect meanwhile', async () => {
    const deposit = depositCommand({ storeRejections: true, store: 'response' })
    const asked = request(newAccount())
    let attempts = 0
    let winner: unknown
    const beaten: Database = {
      ...db,
      attempt: async (options, work) => {
        if ((attempts += 1) === 2) {
          const fill = { ...asked, requestId: newRequest(), input: { ...asked.input, amount: 50 } }
          await commandsWith().run(depositCommand({ name: 'Fill' }), fill)
          winner = await commandsWith().run(deposit, asked)
        }
        return await db.attempt(options, work)
      },
    }
    const outcome = await commandsWith({ db: beaten }).run(deposit, asked)
    expect(winner).toMatchObject({ status: 'executed', response: { balance: 45 } })
    expect(outcome).toMatchObject({ status: 'replayed', response: { balance: 45 }, from: 'marker' })
    expect(await bank.effects(asked.requestId)).toBe(1)
  })
})

describe('the way in', () => {
  test('refuses what cannot be a principal, a request id, an input, a version or a command', async () => {
    const commands = commandsWith()
    const deposit = depositCommand()
    const good = { principal: 'ann', requestId: newRequest(), input: { account: 'a', amount: 1 } }
    for (const bad of [
      { principal: '' },
      { requestId: '' },
      { requestId: 'x'.repeat(256) },
      { requestId: 'a\u0000b' },
      { principal: 'a\nb' },
      { expectedVersion: -1 },
    ])
      expect(await commands.run(deposit, { ...good, ...bad })).toMatchObject({ code: 'INVALID_INPUT' })
    expect(await commands.run(deposit, { ...good, input: { account: 7 } as never })).toMatchObject({
      code: 'INVALID_INPUT',
      message: expect.stringContaining('account'),
    })
    await expect(commands.run({ name: 'Deposit' }, good)).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
    await commands.run(deposit, good)
    await expect(commands.run(depositCommand(), good)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(() => createCommands({ db: database.pool, outbox: bank.outbox } as never)).toThrow(/fromPg/)
    expect(() => commandsWith({ markerLockMS: 5 } as never)).toThrow(/Did you mean "markerLockMs"/)
  })

  test('counts requests without an id, lets them through while ids are optional, and warns when that ends too early', async () => {
    const missing = heard('command.request-id-missing')
    const commands = commandsWith({ requestId: 'optional', signals: missing.signals })
    const warned: unknown[] = []
    missing.signals.on('command.required-too-early', (event) => void warned.push(event))
    const deposit = depositCommand()
    const request = { principal: 'ann', client: 'ios 1.2', input: { account: newAccount(), amount: 1 } }
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'executed' })
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'executed' })
    expect(commands.missingRequestIds()).toEqual([{ command: 'Deposit', client: 'ios 1.2', count: 2, perMinute: 2 }])
    expect(commands.requireRequestIds()).toHaveLength(1)
    expect(warned).toEqual([{ command: 'Deposit', client: 'ios 1.2', perMinute: 2 }])
    expect(await commands.run(deposit, request)).toMatchObject({ code: 'REQUEST_ID_MISSING' })
    expect(missing.all.map(({ refused }) => refused)).toEqual([false, false, true])
    expect(await bank.balance(request.input.account)).toBe(2)
  })
})

test('repeats of a slow command cannot use up a small pool: they are all answered while it still runs', async () => {
  const small = connect({ url: database.url, max: 2 })
  const commands = createCommands({ db: small, outbox: bank.outbox, markerLockMs: 20 })
  const entered = gate()
  const leave = gate()
  const deposit = depositCommand({ before: async () => (entered.open(), await leave.opened) })
  const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 1 } }
  const first = commands.run(deposit, request)
  await entered.opened
  const repeats = await Promise.all(Array.from({ length: 5 }, () => commands.run(deposit, request)))
  expect(repeats.map((each) => each.status === 'failed' && each.code)).toEqual(Array(5).fill('IN_PROGRESS'))
  leave.open()
  expect(await first).toMatchObject({ status: 'executed' })
  await small.close()
})
