/**
 * Many clients, several processes, and everything that can break breaking all the time: processes killed, Redis killed, frozen,
 * flushed and failed over, connections to Postgres cut, answers to COMMIT lost. The order of the faults comes from a seed.
 *
 * What is checked is a history: per request at most one effect, exactly one if anybody was told success, and one response. Every
 * effect is known by its call, so that no call that was told failure is excused by another one of its request. New requests come
 * up to the last fault, so that late faults strike effects, too.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { randomInt, seededRandom, type Random } from '../../src/core/service/random.ts'
import type { Child } from '../../src/testing/process/child.ts'
import { startFaultProxy, type FaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import { isCommitReply, isCommitRequest, postgresFrames } from '../../src/testing/faults/postgres-frames.ts'
import { startRedis, type Redis } from '../../src/testing/servers/redis.ts'
import { commandSetup } from '../command/command-setup.ts'
import { newHistory, unheard, violations, type Call } from '../command/history.ts'
import type { Answer } from '../command/worker-child.ts'
import { watchChildren } from '../setup/watched-children.ts'

const { database, bank } = await commandSetup()
const script = new URL('../command/worker-child.ts', import.meta.url)
const size = process.env['WAYBILL_PROOF'] === 'full' ? { faults: 200, requests: 400 } : { faults: 24, requests: 48 }
const [clients, processes, accounts] = [8, 3, 4]
const children = watchChildren()
let redis: Redis
let proxy: FaultProxy
let workers: Worker[]

interface Worker {
  readonly child: Child
  isAlive: boolean
}

beforeAll(async () => {
  redis = await startRedis()
  const { hostname, port } = new URL(database.directUrl)
  proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
  workers = await Promise.all(Array.from({ length: processes }, startWorker))
})
afterAll(async () => {
  await Promise.all(workers.map(({ child }) => children.kill(child)))
  await proxy.stop()
  await redis.stop()
})

async function startWorker(): Promise<Worker> {
  const child = children.start(script, { env: { DATABASE_URL: proxy.url(database.directUrl), REDIS_URL: redis.url } })
  await child.message((message) => message === 'ready')
  const worker = { child, isAlive: true }
  void child.exited.then(() => (worker.isAlive = false))
  return worker
}

/** The rules that were armed to lose COMMITs, and the answers to them. */
const armed = { request: [] as string[], answer: [] as string[] }

function lose(what: keyof typeof armed): void {
  const name = `${what} ${armed[what].length}`
  armed[what].push(name)
  proxy.arm({
    name,
    direction: what === 'request' ? 'toServer' : 'toClient',
    on: { match: what === 'request' ? isCommitRequest : isCommitReply },
    action: 'cut',
    times: 2,
  })
}

const lost = (what: keyof typeof armed): number => armed[what].reduce((sum, name) => sum + proxy.firings(name), 0)

/** Each is tried at a moment that depends on the answers so far; the next one ends what it started. */
function faults(random: Random): Readonly<Record<string, () => Promise<void>>> {
  return {
    'a process is killed': async () => {
      const index = randomInt(random, 0, processes - 1)
      await children.kill((workers[index] as Worker).child)
      workers[index] = await startWorker()
    },
    'Redis is killed and comes back empty': async () => {
      await redis.kill()
      redis = await startRedis({ port: redis.port })
    },
    'Redis is frozen': async () => redis.freeze(),
    'Redis is flushed': () => redis.flush(),
    'connections are cut': async () => proxy.cut(),
    'COMMITs are lost': async () => lose('request'),
    'answers to COMMIT are lost': async () => lose('answer'),
  }
}

/** All kinds of faults in an order that is drawn anew for each round, so that none is left out. */
function* inRounds<Fault>(random: Random, all: readonly Fault[]): Generator<Fault, never> {
  for (;;)
    for (const { each } of all.map((fault) => ({ each: fault, at: random.next() })).toSorted((a, b) => a.at - b.at)) yield each
}

test('whatever breaks, a request takes effect once, and everybody is told the truth', async () => {
  const seed = 20_250_101
  const random = seededRandom(seed)
  const history = newHistory()
  const input = (requestId: string) => ({
    account: `account-${Number(requestId.slice(8)) % accounts}`,
    amount: 1 + (Number(requestId.slice(8)) % 9),
  })
  let jobs = 0
  const ask = async (requestId: string): Promise<Call> => {
    // A server that ended by itself is not one that nobody heard.
    expect(children.violations).toEqual([])
    const worker = workers[randomInt(random, 0, processes - 1)] as Worker
    const id = (jobs += 1)
    let drawn: readonly number[] = []
    const call = await history.record({ requestId, amount: input(requestId).amount }, async () => {
      if (!worker.isAlive) return unheard
      worker.child.send({ id, requestId, input: input(requestId) })
      const answer = await worker.child.message<Answer>((message) => message?.id === id).catch(() => undefined)
      if (answer === undefined) return unheard
      drawn = answer.drawn
      if (answer.outcome === undefined) throw new Error(answer.error)
      return answer.outcome
    })
    call.drawn.push(...drawn)
    return call
  }
  const isKnown = ({ outcome }: Call): boolean => outcome?.status === 'executed' || outcome?.status === 'replayed'

  let left = size.faults
  const anyRequest = (): string => {
    const come = Math.ceil((size.requests * (size.faults - left + 1)) / size.faults)
    return `request-${randomInt(random, 0, Math.min(come, size.requests) - 1)}`
  }
  const chaos = async (): Promise<void> => {
    // Drawn from elsewhere than what clients draw: their order is that of the answers.
    const order = seededRandom(`faults ${seed}`)
    for (const fault of inRounds(order, Object.values(faults(order)))) {
      await fault()
      const heardOf = history.calls.length
      while (history.calls.length < heardOf + 2 * clients) await ask(anyRequest())
      redis.thaw()
      left -= 1
      if (left === 0) return
    }
  }
  const client = async (): Promise<void> => {
    while (left > 0) await ask(anyRequest())
  }
  await Promise.all([chaos(), ...Array.from({ length: clients }, client)])

  for (let n = 0; n < size.requests; n += 1) while (!isKnown(await ask(`request-${n}`)));
  const ledger = await bank.ledger()
  expect(violations(history, ledger)).toEqual([])
  expect(ledger).toHaveLength(size.requests)
  for (let account = 0; account < accounts; account += 1) {
    const own = ledger.filter((row) => row.account === `account-${account}`)
    expect(await bank.balance(`account-${account}`)).toBe(own.reduce((sum, { amount }) => sum + amount, 0))
  }
  // The faults did happen, and mattered.
  expect(lost('request')).toBeGreaterThan(0)
  expect(lost('answer')).toBeGreaterThan(0)
  const told = new Set(history.calls.map(({ outcome }) => (outcome?.status === 'failed' ? outcome.code : outcome?.status)))
  expect([...told]).toEqual(expect.arrayContaining(['executed', 'replayed', 'UNAVAILABLE']))
}, 1_800_000)
