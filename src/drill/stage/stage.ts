/**
 * What a drill works with: a schema and a topic of its own, the processes it starts, and everything that is recorded.
 *
 * Whatever a drill leaves behind, closing the stage ends its processes and removes its schema, its topic and its subscriptions.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { errorMessage, WaybillError } from '../../core/errors.ts'
import { seededRandom, type Random } from '../../core/service/random.ts'
import { connect } from '../../postgres/connect.ts'
import { execute, one } from '../../postgres/query/database.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually, type EventuallyOptions } from '../../testing/kit/eventually.ts'
import type { ArmedFailpoint } from '../../testing/faults/failpoint.ts'
import type { HistoryEntry } from '../../testing/history/entry.ts'
import { Closers } from '../../testing/process/closers.ts'
import type { TimelineEntry } from './drill.ts'
import { openTransport, type ProcessRole } from '../system/process.ts'
import { countDispatch, countEffects, createDrillTables, dropDrillSchema } from '../system/tables.sql.ts'
import { consumerName, createWorld, deposit, type DrillWorld } from '../system/system.ts'
import { startProcess, type DrilledProcess } from './drilled-process.ts'
import { Tap } from './broker-reader.ts'
import { tapName, type Target, type TopicOrder } from '../target/target.ts'

export interface StageOptions {
  readonly target: Target
  readonly seed: number
  /** Another program for consumers, to see a drill fail. */
  readonly script?: URL | undefined
  /** How long a process may take to stop. @default 45_000 */
  readonly stopMs?: number | undefined
  /** How long a drill waits for anything at all before it counts as failed. @default 45_000 */
  readonly patienceMs?: number | undefined
}

export interface StartProcessOptions {
  readonly failpoint?: ArmedFailpoint
  readonly metrics?: boolean
  /** Another way to the database. */
  readonly url?: string
}

interface StageParts {
  readonly world: DrillWorld
  readonly topic: string
  readonly tap: Tap
  /** What takes away all that was made, last things first. */
  readonly closers: Closers
}

const usualPatienceMs = 45_000
/** A relay that dies stalls its lanes this long. */
const relayLeaseMs = 2_000
const retryMs = 100
/** Between deposits that go on: without it, they would be far ahead of relay and consumer, and a drill long. */
const paceMs = 5
/** A database that restarts is away for some of them. */
const attempts = 300

export class Stage {
  readonly target: Target
  readonly topic: string
  readonly world: DrillWorld
  readonly random: Random
  readonly tap: Tap
  readonly timeline: TimelineEntry[] = []
  /** What the drill itself recorded, such as commands and their answers. */
  readonly recorded: HistoryEntry[] = []
  readonly processes: DrilledProcess[] = []
  evidence: string | undefined
  readonly #closers: Closers
  readonly #script: URL | undefined
  readonly #stopMs: number | undefined
  readonly #patience: Required<EventuallyOptions>
  readonly #startedMs: number = performance.now()
  #turn = 0

  private constructor(options: StageOptions, parts: StageParts) {
    this.target = options.target
    this.#script = options.script
    this.#stopMs = options.stopMs
    this.#patience = patienceOf(options)
    this.random = seededRandom(options.seed)
    this.#closers = parts.closers
    this.world = parts.world
    this.topic = parts.topic
    this.tap = parts.tap
  }

  static async open(options: StageOptions): Promise<Stage> {
    const { target } = options
    const name = `waybill_drill_${randomBytes(4).toString('hex')}`
    const topic = `${name}.events`
    const db = connect({ url: target.url, max: 6, applicationName: 'drill' })
    const world = createWorld({ db, schema: name, topic })
    const closers = new Closers()
    closers.defer(() => db.close())
    closers.defer(async () => void (await execute(db, dropDrillSchema(world.tables))))
    try {
      // A first connection may take long on a busy machine.
      await eventually(() => db.query('select 1'), patienceOf(options))
      await migrate(db, { schema: name, service: 'waybill-drill' })
      for (const statement of createDrillTables(world.tables)) await execute(db, statement)
      const transport = await openTransport(target.transport, world)
      closers.defer(() => transport.close())
      const tap = new Tap(transport, Object.values(world.streams))
      const order: TopicOrder = { topic, consumers: [consumerName, tapName], transport }
      closers.defer(() => target.removeTopic(order))
      closers.defer(() => tap.stop())
      await target.makeTopic(order)
      await tap.open(topic)
      return new Stage(options, { world, topic, tap, closers })
    } catch (error) {
      const left = await closers.close().then(
        () => '',
        (failure: unknown) => ` ${leftBehind(name, failure)}`,
      )
      throw new Error(`${errorMessage(error)}${left}`, { cause: error })
    }
  }

  /** Tells what happens, for whoever reads the report. */
  note(what: string, kind: TimelineEntry['kind'] = 'step'): void {
    this.timeline.push({ atMs: Math.round(performance.now() - this.#startedMs), kind, what })
  }

  /** Closes something when the drill is over, its recovery included. If that fails, the drill's own error still comes first. */
  defer(close: () => Promise<void>): void {
    this.#closers.defer(close)
  }

  /** Says that the fault was seen to happen, and by what. */
  fired(evidence: string): void {
    this.evidence = evidence
    this.note(evidence, 'fault')
  }

  async start(
    role: ProcessRole,
    { failpoint, metrics = false, url = this.target.url }: StartProcessOptions = {},
  ): Promise<DrilledProcess> {
    const { transport } = this.target
    const started = await startProcess({
      settings: { role, url, schema: this.world.schema, topic: this.topic, transport, relayLeaseMs, metrics },
      failpoint,
      patienceMs: this.#patience.timeoutMs,
      stopMs: this.#stopMs,
      script: role === 'consumer' ? this.#script : undefined,
    })
    this.processes.push(started)
    const armed = failpoint === undefined ? '' : `, to ${failpoint.action} ${failpoint.name}`
    this.note(`a ${role} is started (pid ${started.child.pid}${armed})`, failpoint === undefined ? 'recovery' : 'step')
    return started
  }

  /** Commits deposits, one transaction each; what fails is tried again until it is committed. */
  async write(count: number): Promise<void> {
    for (let done = 0; done < count; done += 1) await this.#writeOne()
    this.note(`${count} deposits are committed`)
  }

  /**
   * Commits deposits for as long as something happens, which can ask how many they are by now. It fails as the first of both
   * does, when both have ended: nothing goes on behind it.
   */
  async writeDuring(work: (committed: () => number) => Promise<void>): Promise<void> {
    const stop = new AbortController()
    let count = 0
    let isOver = false
    const writing = async (): Promise<void> => {
      while (!isOver) {
        await this.#writeOne(stop.signal)
        count += 1
        await delay(paceMs)
      }
    }
    const working = work(() => count).finally(() => (isOver = true))
    const both = [writing(), working]
    try {
      await Promise.all(both)
    } finally {
      stop.abort()
      await Promise.allSettled(both)
    }
    this.note(`${count} deposits are committed meanwhile`)
  }

  /** Goes on committing until something is so. */
  async writeUntil(check: () => boolean): Promise<void> {
    let count = 0
    await this.until(async () => {
      if (check()) return true
      await this.#writeOne()
      count += 1
      return false
    })
    this.note(`${count} deposits are committed meanwhile`)
  }

  /** Events that are committed and not confirmed as published. */
  async unpublished(): Promise<number> {
    return (await one(this.world.db, countDispatch(this.world.outbox.tables.dispatch))).count
  }

  async effects(): Promise<number> {
    return (await one(this.world.db, countEffects(this.world.tables))).count
  }

  /** Waits for something that the drill is about; in vain it fails the drill. */
  async until(check: () => boolean | Promise<boolean>): Promise<void> {
    await eventually(async () => this.failures().length > 0 || (await check()), this.#patience)
    const [failure] = this.failures()
    if (failure !== undefined) throw new WaybillError('UNAVAILABLE', failure)
  }

  /** What was wrong with the ends of processes, so far. */
  failures(): readonly string[] {
    return this.processes.flatMap(({ failure }) => failure ?? [])
  }

  async #writeOne(stopping?: AbortSignal): Promise<void> {
    const to = { account: `account-${this.#turn % 5}`, amount: 1 + Math.floor(this.random.next() * 100) }
    this.#turn += 1
    for (let attempt = 1; ; attempt += 1) {
      try {
        return void (await transaction(this.world.db, (tx) => deposit(this.world, tx, to)))
      } catch (error) {
        if (attempt === attempts || stopping?.aborted === true) throw error
        await delay(retryMs)
      }
    }
  }

  /** Stops those that still run; what is wrong with that is among the failures. */
  async stopProcesses(): Promise<void> {
    await Promise.allSettled(this.processes.map((each) => each.stop()))
  }

  async close(): Promise<void> {
    this.#closers.defer(async () => void (await Promise.all(this.processes.map((each) => each.kill()))))
    try {
      await this.#closers.close()
    } catch (error) {
      throw new Error(leftBehind(this.world.schema, error), { cause: error })
    }
  }
}

function patienceOf({ patienceMs = usualPatienceMs }: StageOptions): Required<EventuallyOptions> {
  return { timeoutMs: patienceMs, intervalMs: 25 }
}

function leftBehind(name: string, failure: unknown): string {
  return `Not all of what the drill made could be removed (schema ${name}, topic ${name}.events): ${errorMessage(failure)}`
}
