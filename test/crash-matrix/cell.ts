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
import type { Child } from '../../src/testing/process/child.ts'
import { crashPointName } from '../../src/testing/faults/crash-places.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { checkHistory, explainVerdict } from '../../src/testing/history/checker.ts'
import type { CrashReport, CrashSettings } from './crashed-process.ts'
import { AnswerGotThrough, holdAnswer, prepareFault, strike } from './faults.ts'
import { judge } from './judge.ts'
import { leaseMs, poison, type Deposit } from './ledger.ts'
import { cellName, isPoisoned, leftOver, requests, setScene, underWay, type Cell, type Scene } from './scene.ts'
import type { Site } from './site.ts'
import { stir } from './stir.ts'

export interface CellResult {
  readonly cell: string
  /** The process stood at the place, and the fault happened there. Who talks to the broker was itself refused by it. */
  readonly fired: boolean
  readonly violations: readonly string[]
  /** The verdict in words, with the shortest part of the history that shows each violation. */
  readonly explanation?: string
  readonly tookMs: number
}

export interface CellOptions {
  /** A known mistake in the process that is crashed. */
  readonly mistake?: CrashSettings['mistake']
  /** How long the database may take to come to rest once outbox and broker have nothing more. @default 120_000 */
  readonly patienceMs?: number
}

/** How often a cell is played until its fault could be done. */
const mostAttempts = 8
/** Each time in vain, the answer that is to be lost comes later: a slow machine hears late that it is to be held. */
const lateMs = (misses: number): number => Math.min(200, 25 * 2 ** misses)

/** Plays a cell. Never rejects: whatever goes wrong is a violation. */
export async function playCell(site: Site, cell: Cell, options: CellOptions = {}): Promise<CellResult> {
  for (let misses = 0; ; misses += 1) {
    const { isMissed, ...result } = await playOnce(site, { cell, misses }, options)
    if (!isMissed || misses + 1 === mostAttempts) return result
  }
}

async function playOnce(
  site: Site,
  played: Pick<Scene, 'cell' | 'misses'>,
  options: CellOptions,
): Promise<CellResult & { readonly isMissed: boolean }> {
  const { cell } = played
  const startedAt = performance.now()
  const said = { fired: false }
  const closers: (() => unknown)[] = []
  const end = (
    rest: Pick<CellResult, 'violations' | 'explanation'>,
    isMissed = false,
  ): CellResult & { readonly isMissed: boolean } => ({
    cell: cellName(cell),
    fired: said.fired,
    ...rest,
    tookMs: Math.round(performance.now() - startedAt),
    isMissed,
  })
  try {
    const scene = await setScene(site, played, closers)
    await act(scene, options, said)
    const verdict = checkHistory(await judge(scene))
    const ahead = (await scene.broker.aheadOfDatabase?.()) ?? []
    const explanation = [explainVerdict(verdict), ...ahead].join('\n')
    const violations = [...verdict.violations.map(({ text }) => text), ...ahead]
    return end(violations.length === 0 ? { violations } : { violations, explanation })
  } catch (error) {
    return end({ violations: [`error: ${errorMessage(error)}`] }, error instanceof AnswerGotThrough)
  } finally {
    for (const close of closers.toReversed()) await Promise.resolve(close()).catch(() => undefined)
  }
}

async function act(scene: Scene, options: CellOptions, said: { fired: boolean }): Promise<void> {
  const { cell, crew, child, broker } = scene
  const { place, fault } = cell
  const { patienceMs = 120_000 } = options
  if (isPoisoned(cell)) {
    await poison(scene.db)
    crew.startOperator()
  }
  const first = [...requests('first', scene), ...requests('second', scene)]
  for (const deposit of first) await crew.insist(deposit)
  const isConsumer = place.role === 'consumer' || place.role === 'stored consumer'
  if (isConsumer) await crew.publishAll()
  const its = requests('its', scene)
  const ending = listen(scene)
  const stirred = await crash(scene, its, options)
  said.fired = fault !== 'broker refusal'

  broker.reject(false)
  const isAlone = fault === 'SIGKILL' || fault === 'SIGSTOP' || stirred === 'stopped'
  const startCrew = (): void => {
    if (stirred !== 'joined') crew.start({ relay: isAlone || place.role !== 'relay', consumer: isAlone || !isConsumer })
  }
  // A process that talks to the broker has to be refused itself: nobody else may be there for it.
  const isRefusedItself = fault === 'broker refusal' && (isConsumer || place.role === 'relay')
  if (!isRefusedItself) startCrew()
  if (fault !== 'SIGKILL' && fault !== 'SIGSTOP') child.thaw()
  const repeated = place.role === 'command server' ? its : []
  const last = [...requests('last', scene), ...repeated]
  const asked = Promise.all(last.map((deposit) => crew.insist(deposit)))
  asked.catch(() => undefined)
  if (fault === 'broker refusal') {
    // A process that is about to end does not try again.
    if (stirred === 'stopped') await within(child.exited, 'the process ended')
    else await eventually(() => broker.refused() > 0, { timeoutMs: 120_000 })
    said.fired = true
    broker.refuse(false)
    if (isRefusedItself) startCrew()
  }
  if (fault === 'SIGSTOP') {
    await outliveLease(scene)
    child.thaw()
  }
  await asked
  const isAtRest = await toRest(scene, ending, patienceMs)
  if (fault !== 'SIGKILL') await stopChild(child)
  if (isAtRest) await toRest(scene, { isDone: true }, patienceMs)
  await look(scene)
  for (const deposit of [...first, ...last]) await crew.insist(deposit)
}

/** Lets the process come to its place, and strikes it there. Returns what had to be done for it to come. */
async function crash(scene: Scene, its: readonly Deposit[], { mistake }: CellOptions): ReturnType<typeof stir> {
  const { site, cell, url, child, proxy, broker, misses } = scene
  const { place, fault } = cell
  // Without a message that the broker refuses there is nothing to settle.
  const isCondemned = place.name === 'settling' || place.name === 'settled'
  // Without a change that comes before its predecessor nothing waits.
  const isOvertaken = place.name.startsWith('waiting ')
  broker.reject(isCondemned)
  await within(
    child.message<CrashReport>((message) => 'isReady' in message),
    'the process was ready',
  )
  const failpoint = crashPointName(place)
  const struck = { site, child, proxy, broker, url, at: place.at, lateMs: lateMs(misses) }
  prepareFault(fault, struck)
  const where = { url: proxy.url(url), broker: broker.crashedAddress, redisUrl: site.redis?.url }
  const { role, onHit = 1 } = place
  const what = { isCondemned, isOvertaken, isPoisoned: isPoisoned(cell), mistake }
  child.send({ role, failpoint, onHit, deposits: its, ...what, ...where } satisfies CrashSettings)
  let isThere = false
  const stands = child.failpoint(failpoint).then(() => {
    isThere = true
    holdAnswer(fault, struck)
  })
  stands.catch(() => undefined)
  const stirred = await stir(scene, () => isThere)
  await within(stands, `the process came to "${failpoint}"`)
  await look(scene)
  await strike(fault, struck)
  return stirred
}

/** What is acknowledged must be in the database: processed, stored or given up. */
async function look({ broker, db }: Scene): Promise<void> {
  await broker.look?.(async () => {
    const tables = ['inbox', 'inbox_message', 'dead_letter']
    const text = tables.map((table) => `select event_id::text as id from waybill.${table}`).join(' union ')
    return ((await db.query(text)).rows as { id: string }[]).map(({ id }) => id)
  })
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
  const sessionMs = 'sessionMs' in scene.broker.address ? scene.broker.address.sessionMs : 0
  const longestMs = Math.max(leaseMs, 1_000, sessionMs) * 1.3
  await eventually(async () => past(2 * longestMs) || (past(longestMs) && (await leftOver(scene)) === 0), { intervalMs: 50 })
}

/** Whether it came to rest in time; what is left if it did not, the checker is told. */
async function toRest(scene: Scene, ending: { readonly isDone: boolean }, timeoutMs: number): Promise<boolean> {
  try {
    await eventually(async () => (await underWay(scene)) === 0, { timeoutMs: 120_000, intervalMs: 20 })
    return await eventually(async () => ending.isDone && (await leftOver(scene)) === 0, { timeoutMs, intervalMs: 20 })
  } catch (error) {
    if (!ending.isDone) throw new Error('The process did not answer what it was asked.', { cause: error })
    return false
  }
}

async function stopChild(child: Child): Promise<void> {
  child.send('stop')
  const { code, signal } = await within(child.exited, 'the process stopped when it was told to')
  if (code !== 0) throw new Error(`The process ended by ${signal ?? `code ${code}`}:\n${child.stderr.slice(-1_000)}`)
}

async function within<Result>(promise: Promise<Result>, what: string): Promise<Result> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`Not within two minutes: ${what}.`)), 120_000)
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
