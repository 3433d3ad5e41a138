import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { accounts, depositCommand, newSteps, type Deposit, type DepositResult } from '../../../test/command/bank.ts'
import { commandSetup, gate, heard } from '../../../test/command/command-setup.ts'
import { createTokens } from '../../core/event/token.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { lockAggregate, lockAggregates } from './aggregate.ts'
import { command, type Command } from './command.ts'
import { versionConflict } from './rejection.ts'

const { db, bank, commandsWith, newAccount, newRequest } = await commandSetup()

describe('versions', () => {
  test('a version that the client sent is compared once and never tried again', async () => {
    const steps = newSteps()
    const { signals, all } = heard('command.retried')
    const commands = commandsWith({ signals })
    const deposit = depositCommand({ steps })
    const account = newAccount()
    const ask = (expectedVersion: number) =>
      commands.run(deposit, { principal: 'ann', requestId: newRequest(), input: { account, amount: 1 }, expectedVersion })
    expect(await ask(0)).toMatchObject({ status: 'executed' })
    expect(await ask(1)).toMatchObject({ status: 'executed' })
    const refused = await ask(1)
    expect(refused).toMatchObject({ code: 'PRECONDITION_FAILED', retryable: false })
    expect(createTokens().decode((refused as { token: string }).token).version).toBe(2n)
    expect(all).toEqual([])
    expect([...steps.executes.values()]).toEqual([1, 1])
  })

  test('a race that is lost elsewhere says nothing about the version that the client sent', async () => {
    const [account, commands] = [newAccount(), commandsWith({ retries: 1 })]
    const ask = (lost: number, expectedVersion: number) =>
      commands.run(
        depositCommand({
          name: `Deposit${lost}`,
          before: async (_tx, { attempt }) => {
            if (attempt <= lost) throw versionConflict('the limit of the day')
          },
        }),
        { principal: 'ann', requestId: newRequest(), input: { account, amount: 1 }, expectedVersion },
      )
    expect(await ask(1, 0)).toMatchObject({ status: 'executed', attempts: 2 })
    expect(await ask(2, 1)).toMatchObject({ code: 'VERSION_CONFLICT', retryable: true })
    expect(await ask(3, 0)).toMatchObject({ code: 'PRECONDITION_FAILED' })
  })

  test('an attempt that lost the race for the aggregate itself is not made with the version that the client sent', async () => {
    const [account, commands, steps] = [newAccount(), commandsWith(), newSteps()]
    const ask = (deposit: Command<Deposit, DepositResult>, requestId: string) =>
      commands.run(deposit, { principal: 'ann', requestId, input: { account, amount: 1 }, expectedVersion: 0 })
    const other = depositCommand({ name: 'Other' })
    // Another caller, who is not inside of the command.
    const elsewhere = AsyncLocalStorage.snapshot()
    const slow = depositCommand({
      steps,
      locking: 'version',
      before: async () => void (await elsewhere(() => ask(other, newRequest()))),
    })
    const requestId = newRequest()
    expect(await ask(slow, requestId)).toMatchObject({ code: 'PRECONDITION_FAILED', token: expect.any(String) })
    expect([steps.executes.get(requestId), await bank.balance(account)]).toEqual([1, 1])
  })

  test.each(['row', 'version'] as const)(
    '200 writers on one aggregate (locking: %s) lose no update, try a bounded number of times, and keep their plans',
    async (locking) => {
      const steps = newSteps()
      const commands = commandsWith({ lockTimeoutMs: 30_000, maxQueued: 200, queueTimeoutMs: 240_000 })
      const deposit = depositCommand({ locking, steps, store: 'response' })
      const account = newAccount()
      const requests = Array.from({ length: 200 }, () => newRequest())
      const calls = new Map<string, number>()
      const outcomes = await Promise.all(
        requests.map(async (requestId) => {
          for (;;) {
            calls.set(requestId, (calls.get(requestId) ?? 0) + 1)
            const outcome = await commands.run(deposit, { principal: 'ann', requestId, input: { account, amount: 1 } })
            if (outcome.status === 'executed') return outcome
            expect(outcome).toMatchObject({ code: 'VERSION_CONFLICT', retryable: true })
          }
        }),
      )
      expect(await bank.balance(account)).toBe(200)
      expect(new Set(outcomes.map(({ response }) => response.balance)).size).toBe(200)
      const ledger = await bank.ledger()
      for (const [index, requestId] of requests.entries()) {
        const rows = ledger.filter((row) => row.request_id === requestId)
        expect(rows.map(({ lucky }) => lucky)).toEqual([outcomes[index]?.response.lucky])
        expect(steps.plans.get(requestId)).toBe(calls.get(requestId))
        expect(steps.executes.get(requestId)).toBeLessThanOrEqual(6 * (calls.get(requestId) ?? 0))
      }
      // Holding the row nobody loses a race; comparing versions, many do.
      expect([...steps.executes.values()].some((n) => n > 1)).toBe(locking === 'version')
    },
    240_000,
  )

  test('a command that compares versions must leave a new one behind', async () => {
    const silent = command('Silent', {
      input: z.object({ account: z.string() }),
      aggregate: ({ account }) => ({ type: 'account', id: account }),
      locking: 'version',
      execute: async () => ({}),
    })
    await expect(
      commandsWith().run(silent, { principal: 'ann', requestId: newRequest(), input: { account: 'a' } }),
    ).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  test('a writer that is no command takes the same lock, also on an aggregate that nobody has seen', async () => {
    const account = newAccount()
    const entered = gate()
    const leave = gate()
    const order: string[] = []
    const writer = transaction(db, async (tx) => {
      expect(await lockAggregate(tx, { type: 'account', id: account })).toEqual({ type: 'account', id: account, version: 0n })
      entered.open()
      await leave.opened
      order.push('writer')
      await bank.outbox.add(tx, accounts.BalanceChanged, account, { balance: 7 }, { version: 43 })
    })
    await entered.opened
    const deposit = depositCommand({ before: async () => void order.push('command') })
    const run = commandsWith().run(deposit, { principal: 'ann', requestId: newRequest(), input: { account, amount: 1 } })
    leave.open()
    await writer
    expect(createTokens().decode(((await run) as { token: string }).token).version).toBe(44n)
    expect(order).toEqual(['writer', 'command'])
  })

  test('several aggregates are locked in one order, whatever the order they are named in', async () => {
    const [a, b] = [
      { type: 'account', id: newAccount() },
      { type: 'account', id: newAccount() },
    ]
    const lock = (names: readonly { type: string; id: string }[]) =>
      transaction(db, (tx) => lockAggregates(tx, names), { retries: 0 })
    const results = await Promise.all(Array.from({ length: 30 }, (_, n) => lock(n % 2 === 0 ? [a, b] : [b, a])))
    expect(results[1]?.map(({ id }) => id)).toEqual([b.id, a.id])
  })
})

test.each([
  ['is half a surrogate pair, which would be locked as another one,', '\ud800'],
  ['has more bytes than brokers take', 'ä'.repeat(513)],
  ['is longer than an index holds', Array.from({ length: 9_000 }, (_, n) => n.toString(36)).join('')],
  ['is empty', ''],
  ['has a NUL', 'a\u0000b'],
])('an aggregate whose id %s is refused, as an event of it would be', async (_what, id) => {
  const ask = { principal: 'ann', requestId: newRequest(), input: { account: id, amount: 1 } }
  expect(await commandsWith().run(depositCommand(), ask)).toMatchObject({ status: 'failed', code: 'INVALID_INPUT' })
  const locking = transaction(db, async (tx) => await lockAggregate(tx, { type: 'account', id }))
  await expect(locking).rejects.toMatchObject({ code: 'INVALID_INPUT' })
  const ofType = transaction(db, async (tx) => await lockAggregate(tx, { type: id, id: 'a' }))
  await expect(ofType).rejects.toMatchObject({ code: 'INVALID_INPUT' })
  const adding = transaction(db, async (tx) => await bank.outbox.add(tx, accounts.BalanceChanged, id, { balance: 1 }))
  await expect(adding).rejects.toMatchObject({ code: 'INVALID_INPUT' })
})

test('an aggregate is locked by the longest type and id that are taken', async () => {
  const [type, id] = [noise(1_024), noise(1_024)]
  const locked = await transaction(db, async (tx) => await lockAggregate(tx, { type, id }))
  expect(locked).toEqual({ type, id, version: 0n })
})

/** Text of so many bytes that an index cannot compress. */
function noise(bytes: number): string {
  return randomBytes(bytes).toString('base64url').slice(0, bytes)
}
