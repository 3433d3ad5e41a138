/**
 * Tenants on one service, over one pool of ten connections: what one of them does, however much, costs the others no connection.
 */
import pg from 'pg'
import { afterAll, describe, expect, onTestFinished, test } from 'vitest'
import { z } from 'zod'
import { depositCommand } from '../../../test/command/bank.ts'
import { commandSetup, gate } from '../../../test/command/command-setup.ts'
import { createSignals, type Signals } from '../../core/signals.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { bulk } from '../bulk.ts'
import { command, type AnyCommand } from '../model/command.ts'
import type { CommandsOptions } from '../commands.ts'
import { memoryCache } from '../cache/memory.ts'
import type { Outcome } from '../model/outcome.ts'

const { database, bank, commandsWith, newAccount, newRequest } = await commandSetup()
const pool = new pg.Pool({ connectionString: database.url, max: 10 })
const db = fromPg(pool)
afterAll(() => pool.end())

type Told = Signals['command.queued'] & { readonly name: string; readonly reason?: string }

/** A service whose deposits stop inside their transactions until `release`. */
function service(options: Partial<CommandsOptions> = {}) {
  const signals = createSignals()
  const told: Told[] = []
  for (const name of ['command.queued', 'command.admitted', 'command.refused'] as const)
    signals.on(name, (event) => void told.push({ name, ...event }))
  const commands = commandsWith({ db, signals, lockTimeoutMs: 60_000, queueTimeoutMs: 60_000, ...options })
  const held = gate()
  // A test that fails gives its connections back, too.
  onTestFinished(held.open)
  const hot = depositCommand({ name: 'Hot', before: () => held.opened })
  const calm = depositCommand({ name: 'Calm' })
  const ask = (what: typeof hot, principal: string, account: string, requestId = newRequest()): Promise<Outcome> =>
    commands.run(what, { principal, requestId, input: { account, amount: 1 } })
  /** Waits until this many are queued and this many are refused. */
  const settled = async (queued: number, refused: number): Promise<void> => {
    const count = (name: string): number => told.filter((each) => each.name === name).length
    await eventually(() => count('command.queued') === queued && count('command.refused') === refused)
  }
  /** Takes both places of an account. */
  const fill = async (account: string): Promise<readonly Promise<Outcome>[]> => {
    const asked = [1, 2].map(() => ask(hot, 'ann', account))
    await eventually(() => pool.totalCount - pool.idleCount === 2)
    return asked
  }
  return { commands, told, hot, calm, ask, settled, fill, release: held.open }
}

/** Answers of a tenant whose requests are few, each for an account of its own. */
async function beCalm({ ask, calm }: ReturnType<typeof service>): Promise<readonly Outcome[]> {
  return await Promise.all(Array.from({ length: 5 }, () => ask(calm, 'bob', newAccount())))
}

const executed = Array.from({ length: 5 }, () => expect.objectContaining({ status: 'executed' }))
const tally = (outcomes: readonly Outcome[]): Record<string, number> => {
  const found: Record<string, number> = {}
  for (const outcome of outcomes) {
    const how = outcome.status === 'failed' ? outcome.code : outcome.status
    found[how] = (found[how] ?? 0) + 1
  }
  return found
}

describe('a calm tenant is served at once, waits in no line and is refused nothing', () => {
  test('while another one sends 300 commands for one account at once', async () => {
    const stage = service()
    const account = newAccount()
    const attack = Array.from({ length: 300 }, () => stage.ask(stage.hot, 'mallory', account))
    await stage.settled(100, 198)
    expect([pool.totalCount - pool.idleCount, pool.waitingCount]).toEqual([2, 0])
    expect(await beCalm(stage)).toEqual(executed)
    expect(stage.told.filter(({ principal }) => principal === 'bob')).toEqual([])
    stage.release()
    const outcomes = await Promise.all(attack)
    expect(tally(outcomes)).toEqual({ executed: 102, OVERLOADED: 198 })
    expect(outcomes.find(({ status }) => status === 'failed')).toMatchObject({ retryable: true, retryAfterMs: 1_000 })
    expect(await bank.balance(account)).toBe(102)
  })

  test('while another one sends 300 commands for 300 accounts at once', async () => {
    const stage = service()
    const attack = Array.from({ length: 300 }, () => stage.ask(stage.hot, 'mallory', newAccount()))
    await stage.settled(100, 195)
    expect([pool.totalCount - pool.idleCount, pool.waitingCount]).toEqual([5, 0])
    expect(await beCalm(stage)).toEqual(executed)
    expect(stage.told.filter(({ principal }) => principal === 'bob')).toEqual([])
    stage.release()
    expect(tally(await Promise.all(attack))).toEqual({ executed: 105, OVERLOADED: 195 })
  })

  test('while 300 others send a command each for one account, one by one, as a bulk and as a child', async () => {
    const account = newAccount()
    for (const wrap of [(each: AnyCommand) => each, asBulk, asChild]) {
      const stage = service()
      const wrapped = wrap(stage.hot) as typeof stage.hot
      const input = { account, amount: 1 }
      const attack = Array.from({ length: 300 }, (_, n) =>
        stage.commands.run(wrapped, {
          principal: `mallory ${n}`,
          requestId: newRequest(),
          input: (wrap === asBulk ? [{ input }] : input) as typeof input,
        }),
      )
      await stage.settled(100, 198)
      expect([pool.totalCount - pool.idleCount, pool.waitingCount]).toEqual([2, 0])
      expect(await beCalm(stage)).toEqual(executed)
      stage.release()
      expect(tally(await Promise.all(attack))).toEqual({ executed: 102, OVERLOADED: 198 })
    }
  })

  test('while the loads of another one hang', async () => {
    const stage = service()
    const held = gate()
    onTestFinished(held.open)
    const slow = command('Slow', {
      input: z.object({ account: z.string() }),
      aggregate: ({ account }) => ({ type: 'account', id: account }),
      load: async () => await held.opened,
      execute: async () => ({}),
    })
    const attack = Array.from({ length: 20 }, () =>
      stage.commands.run(slow, { principal: 'mallory', requestId: newRequest(), input: { account: newAccount() } }),
    )
    await stage.settled(15, 0)
    expect(pool.totalCount - pool.idleCount).toBe(5)
    expect(await beCalm(stage)).toEqual(executed)
    held.open()
    expect(tally(await Promise.all(attack))).toEqual({ executed: 20 })
  })
})

function asBulk(each: AnyCommand): AnyCommand {
  return bulk('HotBulk', each as ReturnType<typeof depositCommand>)
}

function asChild(each: AnyCommand): AnyCommand {
  return command('HotParent', {
    input: z.object({ account: z.string(), amount: z.number() }),
    plan: (input, { child }) => child(each as ReturnType<typeof depositCommand>, input),
    execute: (_tx, planned, { run }) => run(planned),
  })
}

describe('a request that waits in line', () => {
  test('takes effect once, whether its repeats come to this process or to another one', async () => {
    const [stage, other] = [service(), service()]
    const account = newAccount()
    const requestId = newRequest()
    const first = await stage.fill(account)
    const waiting = stage.ask(stage.hot, 'ann', account, requestId)
    await stage.settled(1, 0)
    expect(await stage.ask(stage.hot, 'ann', account, requestId)).toMatchObject({ code: 'IN_PROGRESS' })
    const elsewhere = other.ask(other.hot, 'ann', account, requestId)
    await eventually(() => pool.totalCount - pool.idleCount === 3)
    stage.release()
    other.release()
    expect(tally(await Promise.all(first))).toEqual({ executed: 2 })
    expect((await Promise.all([waiting, elsewhere])).filter(({ status }) => status === 'executed')).toHaveLength(1)
    expect(await bank.effects(requestId)).toBe(1)
  })

  test.each([
    ['with a cache', memoryCache()],
    ['without a cache', undefined],
  ])('or runs takes no connection for 300 repeats, which are told that it is under way (%s)', async (_with, cache) => {
    const stage = service({ markerLockMs: 50, cache })
    const account = newAccount()
    const requestId = newRequest()
    const first = stage.ask(stage.hot, 'ann', account, requestId)
    await eventually(() => pool.totalCount - pool.idleCount === 1)
    const taken: unknown[] = []
    const take = (client: unknown): void => void taken.push(client)
    pool.on('acquire', take)
    const repeats = Array.from({ length: 300 }, () => stage.ask(stage.hot, 'ann', account, requestId))
    expect(tally(await Promise.all(repeats))).toEqual({ IN_PROGRESS: 300 })
    pool.off('acquire', take)
    expect([taken, stage.told]).toEqual([[], []])
    stage.release()
    expect(await first).toMatchObject({ status: 'executed' })
    const again = await stage.ask(stage.hot, 'ann', account, requestId)
    expect(tally([again])).toEqual(cache === undefined ? { ALREADY_COMMITTED: 1 } : { replayed: 1 })
  })

  test('takes effect once, and by the cache its repeats elsewhere are told that it is under way, however long it waits', async () => {
    const [clock, cache] = [createFakeClock(), memoryCache()]
    const [stage, other] = [service({ cache, clock }), service({ cache, clock })]
    const account = newAccount()
    const requestId = newRequest()
    const first = await stage.fill(account)
    const waiting = stage.ask(stage.hot, 'ann', account, requestId)
    await stage.settled(1, 0)
    for (let n = 0; n < 3; n += 1) {
      await clock.advance(1_000)
      expect(await other.ask(other.hot, 'ann', account, requestId)).toMatchObject({ code: 'IN_PROGRESS' })
    }
    stage.release()
    expect(tally(await Promise.all([...first, waiting]))).toEqual({ executed: 3 })
    expect(await bank.effects(requestId)).toBe(1)
  })

  test('and whose caller gives up has done nothing, and its place in line is free', async () => {
    const stage = service({ maxQueued: 1 })
    const account = newAccount()
    const first = await stage.fill(account)
    const requestId = newRequest()
    const caller = new AbortController()
    const request = { principal: 'ann', requestId, input: { account, amount: 1 } }
    const gone = stage.commands.run(stage.hot, { ...request, signal: caller.signal })
    await stage.settled(1, 0)
    caller.abort()
    expect(await gone).toMatchObject({ status: 'failed', code: 'ABORTED', retryable: true })
    const next = stage.ask(stage.hot, 'ann', account)
    await stage.settled(2, 1)
    stage.release()
    expect(tally([...(await Promise.all(first)), await next])).toEqual({ executed: 3 })
    expect(await bank.effects(requestId)).toBe(0)
    expect(await stage.ask(stage.calm, 'ann', account)).toMatchObject({ status: 'executed' })
  })

  test('for too long is OVERLOADED, has done nothing, and leaves no claim in the cache', async () => {
    const cache = memoryCache()
    const stage = service({ queueTimeoutMs: 1, cache })
    const account = newAccount()
    const first = await stage.fill(account)
    const requestId = newRequest()
    expect(await stage.ask(stage.hot, 'ann', account, requestId)).toMatchObject({ code: 'OVERLOADED', retryAfterMs: 1_000 })
    stage.release()
    await Promise.all(first)
    expect(await stage.ask(stage.hot, 'ann', account, requestId)).toMatchObject({ status: 'executed' })
    expect(await bank.effects(requestId)).toBe(1)
  })

  test('in a child whose parent catches the refusal is OVERLOADED all the same', async () => {
    const stage = service({ maxQueued: 0 })
    const held = gate()
    onTestFinished(held.open)
    const inner = command('Inner', {
      input: z.object({ account: z.string() }),
      aggregate: ({ account }) => ({ type: 'account', id: account }),
      load: async () => await held.opened,
      execute: async () => ({}),
    })
    const outer = command('Outer', {
      input: z.object({ account: z.string() }),
      plan: async (input, { child }) => {
        await child(inner, input).catch((error: unknown) => {
          throw new Error('no child', { cause: error })
        })
      },
      execute: async () => ({}),
    })
    const account = newAccount()
    const run = (): Promise<Outcome> =>
      stage.commands.run(outer, { principal: 'ann', requestId: newRequest(), input: { account } })
    const first = [run(), run()]
    await eventually(() => pool.totalCount - pool.idleCount === 2)
    expect(await run()).toMatchObject({ status: 'failed', code: 'OVERLOADED' })
    held.open()
    expect(tally(await Promise.all(first))).toEqual({ executed: 2 })
  })
})

test('the share of a principal is half of the pool, where its size shows, and unknown options are refused', async () => {
  for (const max of [1, 3, 10]) {
    const other = new pg.Pool({ connectionString: database.url, max })
    const stage = service({ db: fromPg(other) })
    const all = Array.from({ length: 12 }, () => stage.ask(stage.hot, 'ann', newAccount()))
    await stage.settled(12 - Math.ceil(max / 2), 0)
    stage.release()
    expect(tally(await Promise.all(all))).toEqual({ executed: 12 })
    await other.end()
  }
  expect(() => commandsWith({ maxPerPrincipals: 3 } as never)).toThrow(/Did you mean "maxPerPrincipal"/)
  for (const wrong of [{ maxPerAggregate: 0 }, { maxPerPrincipal: 1.5 }, { maxQueued: -1 }, { queueTimeoutMs: Number.NaN }])
    expect(() => commandsWith(wrong)).toThrow(/must be a whole number/)
})
