/**
 * The relay under everything at once: several processes, a broker with bad days, freezes beyond the lease, kills, hand-overs,
 * changes of the number of lanes, poison that parks, and operators who redrive, skip and drop it.
 *
 * Faults are driven by progress, not by time, and the traffic goes on until each has struck. At the end the faults stop, and what
 * was promised is checked.
 */
import { seededRandom } from '../../../src/core/service/random.ts'
import { dropParked, listParked, redriveParked, skipParked } from '../../../src/outbox/operate/parked.ts'
import type { Database } from '../../../src/postgres/query/database.ts'
import { eventually } from '../../../src/testing/kit/eventually.ts'
import { checkHistory, type Verdict } from '../../../src/testing/history/checker.ts'
import { aggregateName, type Commit } from '../../../src/testing/history/entry.ts'
import { createHistory } from '../../../src/testing/history/history.ts'
import { recordHistory } from '../../../src/testing/history/read-history.ts'
import { outboxFixture, type OutboxFixture } from '../../setup/outbox-fixture.ts'
import type { Mutant } from '../mutants/mutant.ts'
import { startBrokerServer, type BrokerServer, type BrokerServerOptions } from './broker-server.ts'
import { startRelayProcesses, type RelayChildSettings, type RelayProcesses } from './relay-processes.ts'
import { write } from './writers.ts'

/** What the stress asks of a broker, whatever it speaks. */
export interface StressBroker extends Pick<BrokerServer, 'port' | 'landed' | 'arrived' | 'calm' | 'close'> {
  readonly protocol: RelayChildSettings['protocol']
  /** How often each fault has struck that is to strike; the writers go on until all have. */
  readonly struck: Readonly<Record<string, number>>
}

export interface StressOptions {
  readonly db: Database
  /** How the relay processes reach the database. */
  readonly url: string
  readonly seed: number
  readonly relays: number
  readonly events: number
  readonly aggregates: number
  /** How many times something happens to a relay process. */
  readonly incidents: number
  /** Breaks a rule, to show that it is noticed. */
  readonly prepare?: Mutant['prepare']
  /** @default a broker of our own, on a socket */
  readonly startBroker?: (options: BrokerServerOptions) => Promise<StressBroker>
  /** @default 600 */
  readonly leaseMs?: number
  /** Something that needs traffic: the writers go on until it has ended. */
  readonly meanwhile?: (broker: StressBroker) => Promise<void>
}

export interface StressReport {
  readonly violations: readonly string[]
  readonly events: number
  readonly duplicates: number
  readonly rolledBack: number
  readonly struck: StressBroker['struck']
  readonly operated: Readonly<Record<'redriven' | 'skipped' | 'dropped', number>>
}

const writers = 3
/** As long as a test may take: how fast it goes is not what it is about. */
const patience = { timeoutMs: 900_000, intervalMs: 20 }

export async function stress(options: StressOptions): Promise<StressReport> {
  const { db, url, seed, events, relays, startBroker = startBrokerServer, leaseMs = 600 } = options
  const random = seededRandom(seed)
  const fixture = await outboxFixture(db)
  await options.prepare?.(fixture)
  const healed = new Set<string>()
  const broker = await startBroker({
    random: seededRandom(`broker ${seed}`),
    rejects: ({ isVoid, ...fact }) => chanceOf(fact, `poison ${seed}`) < 0.01 && !isVoid && !healed.has(fact.event),
  })
  const processes = await startRelayProcesses({
    db,
    outbox: fixture.outbox,
    count: relays,
    settings: {
      url,
      protocol: broker.protocol,
      port: broker.port,
      relay: {
        leaseMs,
        renewMs: leaseMs / 4,
        publishTimeoutMs: leaseMs / 2,
        maxAttempts: 3,
        batchSize: 100,
        busyMs: 2,
        idleMs: 20,
        backoff: { firstMs: 2, maxMs: 40 },
      },
    },
  })
  const operator = createOperator(fixture, healed, { seed, leaseMs })
  let quiet = false
  let committing = 0
  let isNeeded = true
  let isOver = false
  const meanwhile = Promise.resolve(options.meanwhile?.(broker)).finally(() => (isNeeded = false))
  // How many requests a number of events makes depends on the pace, and with it how many of them can be struck.
  const isSpared = (): boolean => Object.values(broker.struck).includes(0)
  const written = Promise.all(
    Array.from({ length: writers }, (_, index) =>
      write({
        db,
        outbox: fixture.outbox,
        random: seededRandom(`writer ${index} ${seed}`),
        aggregates: Array.from({ length: options.aggregates }, (_unused, nth) => `a${nth}`),
        events: Math.ceil(events / writers),
        goesOn: () => !isOver && (isNeeded || isSpared()),
        // Writers stay close ahead of the relays, so that incidents fall among live traffic.
        onCommitted: async (added) => {
          committing += added
          await eventually(() => committing - broker.arrived() < events / 4, patience)
        },
      }),
    ),
  ).finally(() => (quiet = true))
  let struck = false
  const happening = happen({ ...options, fixture, broker, processes, random }).finally(() => (struck = true))
  // Until the last incident, which waits for arrivals: parked heads hold back all that is behind them.
  const operating = eventually(async () => {
    await operator.operate()
    return quiet && struck
  }, patience)
  const all = Promise.all([happening, meanwhile, operating, written])
  await all.finally(() => (isOver = true))
  broker.calm()
  await drained(fixture, operator)
  await processes.stop()
  await broker.close()
  const { violations, counts } = await judge(fixture, broker, operator)
  return {
    violations: [...violations.map(({ text }) => text), ...processes.violations],
    events: counts.ops.commit ?? 0,
    duplicates: counts.duplicates,
    rolledBack: (await written).reduce((sum, count) => sum + count, 0),
    struck: broker.struck,
    operated: operator.done,
  }
}

/** What the database committed, and what operators removed from it, against what reached the broker in its order. */
async function judge({ db, outbox }: OutboxFixture, { landed }: StressBroker, { dropped }: Operator): Promise<Verdict> {
  const history = createHistory()
  for (const entry of landed) history.record(entry)
  for (const commit of dropped) {
    history.record(commit)
    history.record({ op: 'excuse', event: commit.event, why: 'an operator dropped it' })
  }
  await recordHistory(history, { owner: { db, schema: outbox.tables.schema, log: 'recorded' } })
  return checkHistory(history.entries)
}

/** A number from 0 to 1 that depends on nothing but the event's place and what is asked. */
function chanceOf({ aggregate, version }: Pick<Commit, 'aggregate' | 'version'>, what: string): number {
  return seededRandom(`${what} ${aggregate} ${version}`).next()
}

interface Happening extends StressOptions {
  readonly fixture: OutboxFixture
  readonly broker: StressBroker
  readonly processes: RelayProcesses
  readonly random: ReturnType<typeof seededRandom>
}

/** Incidents at even steps of progress. */
async function happen({ incidents, events, relays, fixture, broker, processes, random }: Happening): Promise<void> {
  const changeLanes = async (): Promise<void> => {
    const lanes = [4, 16, 64][Math.floor(random.next() * 3)] as number
    await fixture.db.query(`select ${fixture.outbox.tables.changeLanes.quoted}($1)`, [lanes])
  }
  const kinds = [processes.freeze, processes.kill, processes.replace, changeLanes]
  for (let nth = 0; nth < incidents; nth += 1) {
    await eventually(() => broker.arrived() >= (events * nth) / (incidents + 1), patience)
    await kinds[nth % kinds.length]?.(Math.floor(random.next() * relays))
  }
}

interface Operator {
  /** Does something about everything that is parked now. */
  operate(): Promise<void>
  readonly dropped: readonly Commit[]
  readonly done: { redriven: number; skipped: number; dropped: number }
}

function createOperator(
  { db, outbox }: OutboxFixture,
  healed: Set<string>,
  { seed, leaseMs }: { readonly seed: number; readonly leaseMs: number },
): Operator {
  const dropped: Commit[] = []
  const done = { redriven: 0, skipped: 0, dropped: 0 }
  const common = { db, outbox, actor: 'stress' }
  return {
    dropped,
    done,
    operate: async () => {
      for (const { eventId, aggregateId = '', ...parked } of await listParked(db, outbox)) {
        const action = { ...common, filter: { eventId } }
        const version = Number(parked.version)
        const aggregate = aggregateName('video', aggregateId)
        const chance = chanceOf({ aggregate, version }, `operator ${seed}`)
        if (chance < 0.4) {
          healed.add(eventId)
          done.redriven += (await redriveParked(action)).events.length
        } else if (chance < 0.8) {
          done.skipped += (await skipParked(action)).events.length
        } else if ((await dropParked({ ...action, leaseMs, publishTimeoutMs: leaseMs / 2 })).events.length > 0) {
          dropped.push({ op: 'commit', aggregate, version, event: eventId })
          done.dropped += 1
        }
      }
    },
  }
}

/** Now that nothing goes wrong any more, everything must go out. */
async function drained({ db, outbox }: OutboxFixture, operator: Operator): Promise<void> {
  await eventually(
    async () => {
      await operator.operate()
      const { rows } = await db.query(
        `select state, count(*)::int as rows from ${outbox.tables.dispatch.quoted} group by 1 order by 1`,
      )
      if (rows.length > 0) throw new Error(`stuck: ${JSON.stringify(rows)}`)
    },
    { ...patience, intervalMs: 50 },
  )
}
