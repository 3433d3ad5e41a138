/**
 * Processes that are killed between any two steps of a command, and what those who repeat the request are told.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startChild, type Child } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { startFaultProxy, type FaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import { isCommitReply, isCommitRequest, postgresFrames } from '../../src/testing/faults/postgres-frames.ts'
import { startRedis, type Redis } from '../../src/testing/servers/redis.ts'
import type { FailpointAction } from '../../src/testing/faults/failpoint.ts'
import { depositCommand } from '../command/bank.ts'
import { commandSetup } from '../command/command-setup.ts'
import { redisClients, type OpenCache } from '../command/redis-clients.ts'
import { newHistory, violations } from '../command/history.ts'

const { database, bank, commandsWith, newAccount, newRequest } = await commandSetup()
const script = new URL('../command/worker-child.ts', import.meta.url)
let redis: Redis
let proxy: FaultProxy
let open: OpenCache

beforeAll(async () => {
  redis = await startRedis()
  const { hostname, port } = new URL(database.directUrl)
  proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
  open = await redisClients['redis']!(redis.url)
})
afterAll(async () => {
  open.close()
  await proxy.stop()
  await redis.stop()
})

async function startWorker(failpoint?: { name: string; action: FailpointAction }): Promise<Child> {
  const env = { DATABASE_URL: proxy.url(database.directUrl), REDIS_URL: redis.url }
  const child = startChild(script, { env, ...(failpoint === undefined ? {} : { failpoint }) })
  await child.message((message) => message === 'ready')
  return child
}

/** Repeats a request, as its client would, until its answer is known, and once more. */
async function repeatUntilKnown(requestId: string, input: { account: string; amount: number }) {
  const commands = commandsWith({ cache: open.cache, cacheBudgetMs: 1_000, statementTimeoutMs: 900, pendingTtlMs: 3_600_000 })
  const deposit = depositCommand({ store: 'response' })
  const history = newHistory()
  const ask = async (): Promise<boolean> => {
    const { outcome } = await history.record({ requestId, amount: input.amount }, () =>
      commands.run(deposit, { principal: 'ann', requestId, input }),
    )
    return outcome?.status !== 'failed' || !['IN_PROGRESS', 'UNAVAILABLE'].includes(outcome.code)
  }
  for (let times = 0; times < 2; times += 1) await eventually(ask, { intervalMs: 50 })
  return history
}

const before = ['claimed', 'begun', 'marked', 'executing', 'executed', 'added', 'kept', 'committing']
const after = ['committed', 'completing', 'completed']

test.each([...before, ...after])('killed at "%s": whoever repeats the request gets one effect and one answer', async (name) => {
  const worker = await startWorker({ name, action: 'kill' })
  const requestId = newRequest()
  const input = { account: newAccount(), amount: 5 }
  worker.send({ id: 1, requestId, input })
  await worker.failpoint(name)
  expect((await worker.exited).signal).toBe('SIGKILL')
  const effectsOfTheDead = await bank.effects(requestId)
  expect(effectsOfTheDead).toBe(after.includes(name) ? 1 : 0)
  const history = await repeatUntilKnown(requestId, input)
  expect(violations(history, await bank.ledger())).toEqual([])
  expect(history.calls.at(-1)?.outcome?.status).toBe('replayed')
  expect(await bank.effects(requestId)).toBe(1)
})

test.each([
  {
    what: 'COMMIT was sent',
    rule: { direction: 'toServer', on: { match: isCommitRequest }, action: 'stall' } as const,
    effects: 0,
  },
  {
    what: 'COMMIT was answered',
    rule: { direction: 'toClient', on: { match: isCommitReply }, action: 'stall' } as const,
    effects: 1,
  },
])('killed while $what, before the answer arrived: one effect', async ({ what, rule, effects }) => {
  const worker = await startWorker()
  const requestId = newRequest()
  const input = { account: newAccount(), amount: 5 }
  proxy.arm({ name: what, ...rule })
  worker.send({ id: 1, requestId, input })
  await proxy.fired(what)
  await worker.kill()
  proxy.cut()
  await eventually(async () => (await bank.effects(requestId)) === effects)
  const history = await repeatUntilKnown(requestId, input)
  expect(violations(history, await bank.ledger())).toEqual([])
  expect(await bank.effects(requestId)).toBe(1)
})

test('frozen in the middle for longer than its claim is believed, and thawed: one effect', async () => {
  const worker = await startWorker({ name: 'claimed', action: 'freeze' })
  const requestId = newRequest()
  const input = { account: newAccount(), amount: 5 }
  worker.send({ id: 1, requestId, input })
  await worker.failpoint('claimed')
  const history = await repeatUntilKnown(requestId, input)
  worker.thaw()
  const answer = await worker.message<{ id: number; outcome: { status: string } }>((message) => message?.id === 1)
  expect(answer.outcome.status).toBe('replayed')
  await worker.kill()
  expect(violations(history, await bank.ledger())).toEqual([])
  expect(await bank.effects(requestId)).toBe(1)
})
