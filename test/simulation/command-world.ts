/**
 * Servers that run the same requests at once: the real pipeline of commands, with and without a cache, under kills, lost
 * answers and time that leaps. Whoever got no answer sends the request again, perhaps to another server.
 *
 * In the end every request took effect once or was refused, everybody was told the same, nobody was told of an effect that
 * is not there, and no deposit overwrote another.
 */
import fc, { type Scheduler } from 'fast-check'
import { createCommandsOn, createPipeline, resolveOptions } from '../../src/command/commands.ts'
import { commandTables } from '../../src/command/model/command.sql.ts'
import { memoryCache } from '../../src/command/cache/memory.ts'
import type { Outcome as CommandOutcome } from '../../src/command/model/outcome.ts'
import type { Pipeline } from '../../src/command/pipeline/run.ts'
import { isWaybillError } from '../../src/core/errors.ts'
import { seededRandom } from '../../src/core/service/random.ts'
import { createSignals } from '../../src/core/signals.ts'
import { createOutbox } from '../../src/outbox/outbox.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { depositCommand, type Deposit, type DepositResult } from '../command/bank.ts'
import { Actor } from './actor.ts'
import { fakeDatabase } from './fake-database.ts'
import { faults, type Fault } from './faults.ts'
import type { Outcome } from './simulate.ts'
import { Stage } from './stage.ts'
import { defineAdding } from './store/add-statements.ts'
import { commandStore, defineBank, defineCommands, type CommandRule, type CommandStore } from './store/command-statements.ts'
import { FakeStore } from './store/fake-store.ts'
import { outboxStore } from './store/outbox-tables.ts'
import { defineTransactions } from './store/transaction-statements.ts'

export interface CommandWorld {
  readonly seed: number
  readonly cached: boolean
  readonly locking: 'row' | 'version'
  readonly store: 'marker' | 'response'
  readonly storeRejections: boolean
  /** What the servers are asked, each its own list: which request, and for how much. */
  readonly servers: readonly (readonly { readonly request: number; readonly amount: number }[])[]
  readonly faults: readonly Fault[]
}

export interface CommandMutant {
  readonly pipeline?: (pipeline: Pipeline) => Pipeline
  readonly database?: (db: Database) => Database
  readonly broken?: readonly CommandRule[]
}

const faultySteps = 200
const patience = 20_000

/** Requests 0 and 1 are of one account, 2 and 3 of another. */
const accountOf = (request: number): string => (request < 2 ? 'a' : 'b')

const requests = fc.record({ request: fc.nat(3), amount: fc.constantFrom(5, 5, 5, 7, -20) })

export const commandWorlds: fc.Arbitrary<CommandWorld> = fc.record({
  seed: fc.nat(1_000_000),
  cached: fc.boolean(),
  locking: fc.constantFrom('row', 'row', 'version'),
  store: fc.constantFrom('marker', 'response'),
  storeRejections: fc.boolean(),
  servers: fc.array(fc.array(requests, { minLength: 1, maxLength: 4 }), { minLength: 2, maxLength: 3 }),
  faults: faults(['kill', 'cut', 'cut', 'cut', 'leap'], { steps: faultySteps, count: 12 }),
})

type Told = CommandOutcome<DepositResult> & { readonly request: number; readonly amount: number }

interface Scene {
  readonly world: CommandWorld
  readonly mutant: CommandMutant
  readonly stage: Stage
  readonly store: FakeStore
  readonly data: CommandStore
  readonly command: ReturnType<typeof depositCommand>
  readonly outbox: ReturnType<typeof createOutbox>
  readonly cache: ReturnType<typeof memoryCache> | undefined
  readonly told: Told[]
}

export async function commandHistory(scheduler: Scheduler, world: CommandWorld, mutant: CommandMutant = {}): Promise<Outcome> {
  const scene = createScene(scheduler, world, mutant)
  const { stage } = scene
  const servers = world.servers.map((list, i) => startServer(scene, { list, actor: new Actor(`server-${i}`, stage), done: 0 }))
  for (const fault of world.faults) stage.plan(fault.at, () => happen(scene, servers, fault))
  const isDone = (): boolean => servers.every(({ list, done }) => done === list.length)
  await stage.run(() => isDone() && stage.isOver, faultySteps * 20)
  await stage.run(isDone, patience)
  const violations = isDone() ? commandViolations(scene) : ['a request got no answer']
  return { violations, hash: stage.hash(), steps: stage.steps, trace: stage.trace }
}

function createScene(scheduler: Scheduler, world: CommandWorld, mutant: CommandMutant): Scene {
  const stage = new Stage(scheduler)
  const { clock } = new Actor('database', stage)
  const store = new FakeStore({
    nowMs: () => clock.nowMs(),
    pause: (what) => stage.step(what),
    sleep: (ms, signal) => stage.sleep(ms, signal),
  })
  const data = commandStore(mutant.broken)
  const events = outboxStore(1)
  const outbox = createOutbox()
  // One account has been written to before, the other is new.
  store.seed(events.version, [{ type: 'account', id: 'a', version: 1 }])
  defineAdding(store, outbox.tables, events)
  defineCommands(store, commandTables('waybill'), { ...data, version: events.version })
  defineBank(store, data)
  defineTransactions(store)
  const { locking, storeRejections } = world
  const command = depositCommand({ locking, storeRejections, store: world.store })
  const cache = world.cached ? memoryCache({ clock }) : undefined
  return { world, mutant, stage, store, data, command, outbox, cache, told: [] }
}

interface Server {
  readonly list: CommandWorld['servers'][number]
  actor: Actor
  done: number
}

function startServer(scene: Scene, server: Server): Server {
  const { world, stage, store, outbox, cache, command, mutant, told } = scene
  const { actor, list } = server
  const plain: Database = fakeDatabase(store, actor, stage)
  const settings = resolveOptions({
    db: mutant.database?.(plain) ?? plain,
    outbox,
    cache,
    // A run that died is believed in for a second only.
    statementTimeoutMs: 500,
    pendingTtlMs: 1_000,
    signals: createSignals(),
    clock: actor.clock,
    random: seededRandom(`${world.seed} ${actor.name}`),
  })
  // Time leaps here to whatever is waited for, so the patience with a silent database would be over at every look at the clock.
  const pipeline = { ...createPipeline(settings), db: settings.db, cacheScope: async () => 'the one database' }
  const commands = createCommandsOn(mutant.pipeline?.(pipeline) ?? pipeline, settings)
  const serve = async (): Promise<void> => {
    while (server.done < list.length && actor.isAlive) {
      const { request, amount } = list[server.done] as { readonly request: number; readonly amount: number }
      const input: Deposit = { account: accountOf(request), amount }
      const outcome = await commands.run(command, { principal: 'p', requestId: `r${request}`, input }).catch(() => undefined)
      if (outcome !== undefined && isDefinite(outcome)) {
        told.push({ ...outcome, request, amount })
        server.done += 1
      } else await actor.clock.sleep(20)
    }
  }
  void serve()
  return server
}

/** Something that a client need not ask again. */
function isDefinite(outcome: CommandOutcome<DepositResult>): boolean {
  if (outcome.status !== 'failed') return true
  return outcome.code === 'ALREADY_COMMITTED' || outcome.code === 'KEY_REUSED'
}

/** `doubled r0`, `told of r1, which did not happen`, `different answers to r2`, `wrong balance of a`. */
function commandViolations({ store, data, told, world }: Scene): string[] {
  const found: string[] = []
  const ledger = store.committed(data.ledger)
  for (const request of new Set(world.servers.flat().map((each) => each.request))) {
    const name = `r${request}`
    const effects = ledger.filter(({ requestId }) => requestId === name)
    if (effects.length > 1) found.push(`doubled ${name}`)
    const answers = told.filter((each) => each.request === request)
    const happened = answers.filter((each) => each.status === 'executed' || each.status === 'replayed' || isCommitted(each))
    const isRejectionKept = world.storeRejections && answers.some(({ status }) => status === 'rejected')
    if (happened.length > 0 && effects.length === 0 && !isRejectionKept) found.push(`told of ${name}, which did not happen`)
    if (happened.some(({ amount }) => effects.length > 0 && amount !== effects[0]?.amount)) found.push(`told of another ${name}`)
    if (answers.filter(({ status }) => status === 'executed').length > 1) found.push(`executed ${name} twice`)
    const responses = new Set(happened.flatMap((each) => ('response' in each ? [JSON.stringify(each.response)] : [])))
    if (responses.size > 1) found.push(`different answers to ${name}`)
    if (world.storeRejections && effects.length > 0 && answers.some(({ status }) => status === 'rejected'))
      found.push(`rejected and done ${name}`)
  }
  for (const { id, balance } of store.committed(data.account)) {
    const sum = ledger.filter(({ account }) => account === id).reduce((total, { amount }) => total + amount, 0)
    if (sum !== balance) found.push(`wrong balance of ${id}`)
  }
  return found
}

function isCommitted(told: Told): boolean {
  return told.status === 'failed' && told.code === 'ALREADY_COMMITTED'
}

/** The mutant's way with a COMMIT that was never answered: it is taken for done. */
export function believesInCommit(db: Database): Database {
  return {
    query: db.query,
    attempt: async (options, work) => {
      let done: { readonly result: Awaited<ReturnType<typeof work>> } | undefined
      try {
        return await db.attempt(options, async (tx) => {
          done = { result: await work(tx) }
          return done.result
        })
      } catch (error) {
        if (isWaybillError(error, 'COMMIT_UNKNOWN') && done !== undefined) return done.result
        throw error
      }
    },
  }
}

function happen(scene: Scene, servers: readonly Server[], fault: Fault): void {
  const { stage } = scene
  const server = servers[fault.who % servers.length] as Server
  stage.note(`fault: ${fault.kind} ${server.actor.name} ${fault.arrives}`)
  if (fault.kind === 'kill') {
    server.actor.kill(fault.arrives)
    server.actor = new Actor(`server-${fault.who % servers.length}-${stage.steps}`, stage)
    startServer(scene, server)
  }
  if (fault.kind === 'cut') server.actor.cut(fault.arrives)
  if (fault.kind === 'leap') stage.leap(fault.ms)
}
