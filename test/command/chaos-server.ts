/**
 * A server process of a chaos site: runs the commands it is sent, and waits at the place that a job names until its parent says
 * that what was to happen there has happened. It may be told to have one of the known mistakes.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { PendingEntry } from '../../src/command/cache/cache.ts'
import { createCommandsOn, createPipeline, resolveOptions } from '../../src/command/commands.ts'
import { guardCache } from '../../src/command/cache/bounded-cache.ts'
import type { Outcome } from '../../src/command/model/outcome.ts'
import { versionConflict } from '../../src/command/model/rejection.ts'
import { systemClock } from '../../src/core/service/clock.ts'
import { errorMessage } from '../../src/core/errors.ts'
import { connect } from '../../src/postgres/connect.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { bankOn, depositCommand, type Deposit, type DepositOptions, type DepositResult } from './bank.ts'
import type { CommandName } from './chaos-world.ts'
import { newHistory } from './history.ts'
import { withPlaces, type Place } from './pipeline-places.ts'
import { mutants, setForget } from './pipeline-variants.ts'
import { redisClients } from './redis-clients.ts'

export interface Job {
  readonly id: number
  readonly command: CommandName
  readonly principal: string
  readonly requestId: string
  readonly input: Deposit
  readonly lostRaces: number
  readonly waitAt: Place | undefined
}

/** What a server is told. */
export type Order = { readonly run: Job } | { readonly goOn: number } | { readonly reachRedis: number }

/** What it says; `id` is that of the order. */
export type Report =
  | { readonly id: number; readonly reached: Place }
  | { readonly id: number; readonly hasRedis: true }
  | { readonly id: number; readonly answer: Answer }

export interface Answer {
  readonly outcome?: Outcome<DepositResult>
  readonly error?: string
  readonly drawn: readonly number[]
  readonly executes: number
}

const { DATABASE_URL = '', REDIS_URL = '', REDIS_CLIENT = '', MUTANT } = process.env
const db = connect({ url: DATABASE_URL, max: 12 })
const open = redisClients[REDIS_CLIENT]
if (open === undefined) throw new Error(`There is no client "${REDIS_CLIENT}" of Redis.`)
const { cache } = await open(REDIS_URL, { waits: false })
const settings = resolveOptions({ db, outbox: bankOn(db).outbox, cache, cacheBudgetMs: 100 })
const { cacheBudgetMs: budgetMs, pendingTtlMs, completedTtlMs, maxResponseBytes, signals, random } = settings
const secret = 'q83vASNFZ4mrze8Ay7F/wQhT1mPz0XcE'
// Time runs fast for the cache's breaker: a Redis that has come back is used again at once.
const clock = { ...systemClock, monotonicMs: () => 10_000 * systemClock.monotonicMs() }
const guarded = guardCache(cache, {
  budgetMs,
  pendingTtlMs,
  completedTtlMs,
  maxResponseBytes,
  isPlain: true,
  secret,
  signals,
  random,
  clock,
})
const sound = { ...createPipeline(settings), cache: guarded }
const pipeline = MUTANT === undefined ? sound : mutants[MUTANT]?.(sound)
if (pipeline === undefined) throw new Error(`There is no mutant "${MUTANT}".`)
setForget(async (key) => {
  const probe: PendingEntry = { state: 'pending', fingerprint: '', token: '', aliveAtMs: 0 }
  const found = await guarded.claim(key, probe)
  if (found !== 'unknown') await guarded.release(key, found === 'claimed' ? probe : found)
})

const jobs = new AsyncLocalStorage<Job>()
const waiting = new Map<number, () => void>()
const waitedFor = new Set<number>()
const commands = createCommandsOn(withPlaces(pipeline, wait), settings)
const deposits: Readonly<Record<CommandName, ReturnType<typeof depositCommand>>> = {
  Deposit: deposit('Deposit', { store: 'marker' }),
  KeptDeposit: deposit('KeptDeposit', { store: 'response' }),
  ComparedDeposit: deposit('ComparedDeposit', { store: 'response', locking: 'version' }),
}

process.on('message', (order: Order) => {
  if ('goOn' in order) waiting.get(order.goOn)?.()
  else if ('run' in order) void jobs.run(order.run, run, order.run)
  else void reachRedis(order.reachRedis)
})
process.send?.('ready')

async function run({ id, command, principal, requestId, input }: Job): Promise<void> {
  const { drawn, executes, outcome, error } = await newHistory().record({ requestId, amount: input.amount }, () =>
    commands.run(deposits[command], { principal, requestId, input }),
  )
  const ended = outcome === undefined ? { error: errorMessage(error) } : { outcome: { ...outcome, cause: undefined } }
  tell({ id, answer: { ...ended, drawn, executes } })
}

function deposit(name: CommandName, options: DepositOptions): ReturnType<typeof depositCommand> {
  return depositCommand({
    ...options,
    name,
    before: async (_tx, { attempt }) => {
      if (attempt <= (jobs.getStore()?.lostRaces ?? 0)) throw versionConflict('The account')
    },
  })
}

/** Waits once a job, at the place where it was told to. */
async function wait(place: Place): Promise<void> {
  const { id, waitAt } = jobs.getStore() as Job
  if (place !== waitAt || waitedFor.has(id)) return
  waitedFor.add(id)
  const { promise, resolve } = Promise.withResolvers<void>()
  waiting.set(id, resolve)
  tell({ id, reached: place })
  await promise
}

async function reachRedis(id: number): Promise<void> {
  await eventually(async () => void (await cache.claim(`probe ${process.pid} ${id}`, '', { ttlMs: 1 })), { timeoutMs: 60_000 })
  tell({ id, hasRedis: true })
}

function tell(report: Report): void {
  process.send?.(report)
}
