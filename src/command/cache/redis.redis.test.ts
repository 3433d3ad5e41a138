/**
 * Redis as the first layer: what it speeds up, and that nothing depends on it.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { depositCommand, newSteps } from '../../../test/command/bank.ts'
import { commandSetup, heard } from '../../../test/command/command-setup.ts'
import { newHistory, violations } from '../../../test/command/history.ts'
import { redisClients, type OpenCache } from '../../../test/command/redis-clients.ts'
import { uncaughtDuring } from '../../../test/setup/ending-server.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { startRedis, type Redis } from '../../testing/servers/redis.ts'
import type { CommandCache } from './cache.ts'

const { bank, commandsWith, newAccount, newRequest } = await commandSetup()
const ttlMs = 60_000

test.each(['ioredis', 'redis'] as const)(
  'a Redis that goes away fails the calls and never the process, also if nobody listens to the %s client',
  async (name) => {
    const redis = await startRedis()
    const open = await redisClients[name]!(redis.url, { listens: false })
    const { cache, close } = open
    const uncaught = await uncaughtDuring(async () => {
      await cache.claim('k', 'mine', { ttlMs })
      await redis.kill()
      await eventually(async () =>
        cache.claim('k', 'mine', { ttlMs }).then(
          () => false,
          () => true,
        ),
      )
    })
    close()
    expect(uncaught.map(String)).toEqual([])
  },
)

describe.each(Object.keys(redisClients))('through %s', (name) => {
  let redis: Redis
  let open: OpenCache
  let cache: CommandCache
  beforeAll(async () => {
    redis = await startRedis()
    open = await redisClients[name]!(redis.url)
    cache = open.cache
  })
  afterAll(async () => {
    open.close()
    await redis.stop()
  })

  test('a key is claimed once, and only its owner completes or releases it', async () => {
    expect(await cache.claim('k', 'mine', { ttlMs })).toBeUndefined()
    expect(await cache.claim('k', 'yours', { ttlMs })).toBe('mine')
    await cache.complete('k', 'yours', { value: 'stolen', ttlMs })
    await cache.release('k', 'yours')
    expect(await cache.claim('k', 'x', { ttlMs })).toBe('mine')
    await cache.complete('k', 'mine', { value: 'done äöü ☃ "\\u0000"', ttlMs })
    expect(await cache.claim('k', 'x', { ttlMs })).toBe('done äöü ☃ "\\u0000"')
    await cache.claim('r', 'mine', { ttlMs })
    await cache.release('r', 'mine')
    expect(await cache.claim('r', 'next', { ttlMs })).toBeUndefined()
  })

  test('of many that claim at once one gets it; what was completed after a flush is there; entries end by themselves', async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => cache.claim('race', `c${n}`, { ttlMs })))
    expect(answers.filter((answer) => answer === undefined)).toHaveLength(1)
    await redis.flush()
    await cache.complete('race', 'c0', { value: 'done', ttlMs })
    expect(await cache.claim('race', 'x', { ttlMs })).toBe('done')
    await cache.claim('short', 'a', { ttlMs: 1 })
    await eventually(async () => (await cache.claim('short', 'b', { ttlMs })) === undefined)
  })

  test('a repeat is answered with the first response, without a transaction, also where the marker keeps none', async () => {
    const { signals, all } = heard('command.replayed')
    const commands = commandsWith({ cache, signals, cacheBudgetMs: 5_000 })
    const deposit = depositCommand()
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    const first = await commands.run(deposit, request)
    const { response, token } = first as { response: unknown; token: string }
    expect(await commands.run(deposit, request)).toEqual({ status: 'replayed', response, token, from: 'cache' })
    expect(await commands.run(deposit, { ...request, input: { ...request.input, amount: 6 } })).toMatchObject({
      code: 'KEY_REUSED',
    })
    expect(all).toEqual([{ command: 'Deposit', from: 'cache' }])
    await redis.flush()
    expect(await commands.run(deposit, request)).toMatchObject({ code: 'ALREADY_COMMITTED' })
    expect(await commands.run(deposit, request)).toMatchObject({ code: 'ALREADY_COMMITTED' })
  })

  test('a pending entry whose run was never heard of again is looked up once in the database', async () => {
    // What is pending is believed for three lock waits: these are too long for a busy machine to exceed.
    const commands = commandsWith({ cache, cacheBudgetMs: 5_000, markerLockMs: 20_000, lockTimeoutMs: 30_000 })
    const lost = commandsWith({ cache: { ...cache, complete: async () => undefined }, cacheBudgetMs: 5_000 })
    const deposit = depositCommand({ store: 'response' })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    await lost.run(deposit, request)
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'replayed', from: 'marker' })
    const dead = commandsWith({ cache: { ...cache, release: async () => undefined }, cacheBudgetMs: 5_000 })
    const failing = depositCommand({ name: 'Failing', after: () => Promise.reject(new Error('no')) })
    const other = { ...request, requestId: newRequest() }
    await expect(dead.run(failing, other)).rejects.toThrow('no')
    expect(await commands.run(failing, other)).toMatchObject({ code: 'IN_PROGRESS' })
  })
})

describe('when Redis lets its users down', () => {
  let redis: Redis
  let open: OpenCache
  beforeAll(async () => void (redis = await startRedis()))
  afterEach(() => open.close())
  afterAll(() => redis.stop())

  test('sequential replay with Redis down, version moved on meanwhile: exactly one effect', async () => {
    open = await redisClients['ioredis']!(redis.url)
    const steps = newSteps()
    const commands = commandsWith({ cache: open.cache })
    const deposit = depositCommand({ steps })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'executed' })
    await redis.kill()
    expect(await commands.run(deposit, { ...request, requestId: newRequest() })).toMatchObject({ status: 'executed' })
    const repeat = await commands.run(deposit, request)
    expect(repeat).toMatchObject({ status: 'failed', code: 'ALREADY_COMMITTED' })
    expect(steps.executes.get(request.requestId)).toBe(1)
    expect(await bank.effects(request.requestId)).toBe(1)
    expect(await bank.balance(request.input.account)).toBe(10)
    redis = await startRedis({ port: redis.port })
  })

  const faults: Readonly<Record<string, () => Promise<void>>> = {
    killed: () => redis.kill(),
    frozen: async () => redis.freeze(),
    flushed: () => redis.flush(),
    // Another one takes its place, without what the first had acknowledged.
    'failed over': async () => {
      await redis.kill()
      redis = await startRedis({ port: redis.port })
    },
  }
  const steps = ['claim', 'claimed', 'asked', 'executing', 'executed', 'complete', 'completed'] as const
  const cases = Object.keys(faults).flatMap((fault) => steps.map((step) => ({ fault, step })))

  test.each(cases)('$fault at "$step": one effect, and the truth for everybody', async ({ fault, step }) => {
    open = await redisClients[steps.indexOf(step) % 2 === 0 ? 'ioredis' : 'redis']!(redis.url)
    const { cache } = open
    let fired = 0
    let struck: Promise<void> | undefined
    const at = async (place: (typeof steps)[number]): Promise<void> => {
      if (place !== step || fired > 0) return
      fired += 1
      await (struck = faults[fault]?.())
    }
    const watched: CommandCache = {
      claim: async (...args) => (await at('claim'), await cache.claim(...args).finally(() => void at('claimed'))),
      complete: async (...args) => (await at('complete'), await cache.complete(...args).finally(() => void at('completed'))),
      release: (...args) => cache.release(...args),
    }
    const deposit = depositCommand({ store: 'response', before: () => at('executing'), after: () => at('executed') })
    // Generous while Redis answers: on a busy machine a cache that is merely slow would be passed over, and nothing would strike.
    const cacheBudgetMs = fault === 'flushed' || fault === 'failed over' ? 5_000 : 500
    const commands = commandsWith({ cache: watched, waitForWinnerMs: 5_000, cacheBudgetMs })
    const history = newHistory()
    const requestId = newRequest()
    const input = { account: newAccount(), amount: 5 }
    const ask = () =>
      history.record({ requestId, amount: 5 }, async () => {
        await at('asked')
        return await commands.run(deposit, { principal: 'ann', requestId, input })
      })
    await Promise.all([ask(), ask()])
    await ask()
    expect(fired).toBe(1)
    // Not everybody waits for its end, and the next client finds nobody before it.
    await struck
    if (fault === 'frozen') redis.thaw()
    if (fault === 'killed') redis = await startRedis({ port: redis.port })
    await ask()
    expect(violations(history, await bank.ledger())).toEqual([])
    expect(history.calls.map(({ outcome }) => outcome?.status).filter((status) => status === 'executed')).toHaveLength(1)
    const others = history.calls.filter(({ outcome }) => outcome?.status !== 'executed' && outcome?.status !== 'replayed')
    expect(others.map(({ outcome, error }) => outcome ?? error)).toEqual([])
  })
})
