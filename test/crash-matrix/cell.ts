/**
 * One cell of the matrix: a process freezes at a place, a fault strikes while it stands there, and the checker decides what came
 * of it.
 *
 *   deposits ──▶ the process freezes and says so ──▶ fault ──▶ it goes on, or is gone ──▶ more deposits ──▶ rest ──▶ verdict
 *
 * After a fault that a process must survive, nobody else does its work: it has to recover. Where it is killed, or frozen for
 * longer than its lease, another takes over; the frozen one then wakes up into a world that went on without it.
 */
import { performance } from 'node:perf_hooks'
import { errorMessage } from '../../src/core/errors.ts'
import { fromPg } from '../../src/postgres/from-pg.ts'
import type { Child } from '../../src/testing/child.ts'
import { crashPointName, type CrashPlace } from '../../src/testing/crash-places.ts'
import { eventually } from '../../src/testing/eventually.ts'
import { startFaultProxy } from '../../src/testing/fault-proxy.ts'
import { checkHistory, explainVerdict } from '../../src/testing/history/checker.ts'
import { createHistory } from '../../src/testing/history/history.ts'
import { openCellBroker } from './broker.ts'
import { createCrew } from './crew.ts'
import type { CrashReport, CrashSettings } from './crashed-process.ts'
import { strike, type FaultName } from './faults.ts'
import { judge, type JudgedWorld } from './judge.ts'
import { leaseMs, transportTo, type Deposit } from './ledger.ts'
import { emptyTables, openPool, type Site } from './site.ts'

export interface Cell {
  readonly place: CrashPlace
  readonly fault: FaultName
}

export interface CellResult {
  readonly cell: string
  /** The process stood at the place, and the fault happened there. */
  readonly fired: boolean
  readonly violations: readonly string[]
  /** The verdict in words, with the shortest part of the history that shows each violation. */
  readonly explanation?: string
  readonly tookMs: number
}

export function cellName({ place, fault }: Cell): string {
  return `${crashPointName(place)} × ${fault}`
}

export interface CellOptions {
  /** A known mistake in the process that is crashed. */
  readonly mistake?: CrashSettings['mistake']
  /** How long the system may take to come to rest. @default 30_000 */
  readonly patienceMs?: number
}

/** Plays a cell. Never rejects: whatever goes wrong is a violation. */
export async function playCell(site: Site, cell: Cell, options: CellOptions = {}): Promise<CellResult> {
  const startedAt = performance.now()
  const said = { fired: false }
  const closers: (() => unknown)[] = []
  const end = (rest: Pick<CellResult, 'violations' | 'explanation'>): CellResult => ({
    cell: cellName(cell),
    fired: said.fired,
    ...rest,
    tookMs: Math.round(performance.now() - startedAt),
  })
  try {
    const scene = await setScene(site, cell, closers)
    await act(scene, options, said)
    const verdict = checkHistory(await judge(scene))
    const explanation = explainVerdict(verdict)
    const violations = verdict.violations.map(({ text }) => text)
    return end(violations.length === 0 ? { violations } : { violations, explanation })
  } catch (error) {
    return end({ violations: [`error: ${errorMessage(error)}`] })
  } finally {
    for (const close of closers.toReversed()) await Promise.resolve(close()).catch(() => undefined)
  }
}

interface Scene extends JudgedWorld {
  readonly site: Site
  readonly cell: Cell
  readonly url: string
  readonly proxy: Awaited<ReturnType<typeof startFaultProxy>>
  readonly child: Child
}

async function setScene(site: Site, cell: Cell, closers: (() => unknown)[]): Promise<Scene> {
  const { url } = site
  await emptyTables(url)
  const pool = openPool(url)
  closers.push(() => pool.end())
  const { host, port } = site.postgres
  const [broker, proxy] = await Promise.all([openCellBroker(), startFaultProxy({ target: { host, port } })])
  closers.push(
    () => broker.close(),
    () => proxy.stop(),
  )
  const transport = transportTo(broker.emulatorHost)
  closers.push(() => transport.close())
  const history = createHistory({ source: 'client' })
  const db = fromPg(pool)
  const mode = cell.place.role === 'stored consumer' ? 'stored' : 'direct'
  const crew = createCrew({ db, cache: site.cache.cache, transport, history, mode })
  closers.push(() => crew.stop())
  const child = site.takeChild()
  closers.push(() => child.kill())
  return { site, cell, url, broker, proxy, history, db, crew, child }
}

const accounts = ['a', 'b']
/** The cache is older than the cell: its requests have names that no other cell has. */
const requests = (kind: string, { broker }: Scene): Deposit[] =>
  accounts.map((account, i) => ({ request: `${kind} ${account} ${broker.id}`, account, amount: 10 + i }))

async function act(scene: Scene, { mistake, patienceMs = 30_000 }: CellOptions, said: { fired: boolean }): Promise<void> {
  const { site, cell, url, crew, child, proxy, broker } = scene
  const { place, fault } = cell
  const first = [...requests('first', scene), ...requests('second', scene)]
  for (const deposit of first) await crew.insist(deposit)
  if (place.role === 'consumer' || place.role === 'stored consumer') await crew.publishAll()
  // Without a message that the broker refuses there is nothing to settle.
  broker.reject(place.name === 'settling' || place.name === 'settled')

  const its = requests('its', scene)
  const ending = listen(scene)
  await within(
    child.message<CrashReport>((message) => 'isReady' in message),
    'the process was ready',
  )
  const failpoint = crashPointName(place)
  const where = { url: proxy.url(url), emulatorHost: broker.emulatorHost, redisUrl: site.redis.url }
  child.send({ role: place.role, failpoint, deposits: its, mistake, ...where } satisfies CrashSettings)
  await within(child.failpoint(failpoint), `the process came to "${failpoint}"`)
  await strike(fault, { site, child, proxy, broker, url })
  said.fired = true

  broker.reject(false)
  const isAlone = fault === 'SIGKILL' || fault === 'SIGSTOP'
  const isConsumer = place.role === 'consumer' || place.role === 'stored consumer'
  crew.start({ relay: isAlone || place.role !== 'relay', consumer: isAlone || !isConsumer })
  if (fault !== 'SIGKILL' && fault !== 'SIGSTOP') child.thaw()
  const repeated = place.role === 'command server' ? its : []
  const last = [...requests('last', scene), ...repeated]
  const asked = Promise.all(last.map((deposit) => crew.insist(deposit)))
  asked.catch(() => undefined)
  if (fault === 'broker refusal') {
    await eventually(() => broker.refused() > 0)
    broker.refuse(false)
  }
  if (fault === 'SIGSTOP') {
    await outliveLease(scene)
    child.thaw()
  }
  await asked
  const isAtRest = await toRest(scene, ending, patienceMs)
  if (fault !== 'SIGKILL') await stopChild(child)
  if (isAtRest) await toRest(scene, { isDone: true }, patienceMs)
  for (const deposit of [...first, ...last]) await crew.insist(deposit)
}

/** Takes down what the process says of its calls, and notices when it has had its last. */
function listen({ child, history, cell }: Scene): { isDone: boolean } {
  const isServing = cell.place.role === 'writer' || cell.place.role === 'command server'
  const ending = { isDone: !isServing || cell.fault === 'SIGKILL' }
  const from = history.as('child')
  void child
    .message<CrashReport>((message) => {
      if ('entry' in message) from.record(message.entry)
      if ('isDone' in message) ending.isDone = true
      return false
    })
    .catch(() => undefined)
  return ending
}

/** Longer than any lease of the frozen process; until the others have done its work, if they can. */
async function outliveLease(scene: Scene): Promise<void> {
  const since = performance.now()
  const past = (ms: number): boolean => performance.now() - since > ms
  const longestMs = Math.max(leaseMs, 1_000) * 1.3
  await eventually(async () => past(2 * longestMs) || (past(longestMs) && (await leftOver(scene)) === 0), { intervalMs: 50 })
}

/** Whether it came to rest in time; what is left if it did not, the checker is told. */
async function toRest(scene: Scene, ending: { readonly isDone: boolean }, timeoutMs: number): Promise<boolean> {
  try {
    return await eventually(async () => ending.isDone && (await leftOver(scene)) === 0, { timeoutMs, intervalMs: 20 })
  } catch (error) {
    if (!ending.isDone) throw new Error('The process did not answer what it was asked.', { cause: error })
    return false
  }
}

async function leftOver({ db, broker }: Scene): Promise<number> {
  const { rows } = await db.query(
    'select ((select count(*) from waybill.outbox_dispatch) + (select count(*) from waybill.inbox_message))::int as n',
  )
  return (rows[0] as { n: number }).n + broker.unacked()
}

async function stopChild(child: Child): Promise<void> {
  child.send('stop')
  const { code, signal } = await within(child.exited, 'the process stopped when it was told to')
  if (code !== 0) throw new Error(`The process ended by ${signal ?? `code ${code}`}:\n${child.stderr.slice(-1_000)}`)
}

async function within<Result>(promise: Promise<Result>, what: string): Promise<Result> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`Not within a minute: ${what}.`)), 60_000)
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
