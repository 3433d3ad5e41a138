/**
 * A process of the system as a drill sees it: what it reported so far, and the means to wait for more.
 */
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Signals } from '../../core/signals.ts'
import { startChild, type Child, type Exit } from '../../testing/process/child.ts'
import type { ArmedFailpoint } from '../../testing/faults/failpoint.ts'
import type { ProcessReport, ProcessRole, ProcessSettings } from '../system/process.ts'
import { settingsEnvironment } from '../system/told-settings.ts'

type Delivered = NonNullable<ProcessReport['delivered']>

/** The signals that processes report, with what survives JSON of their contents. */
type ReportedSignal = 'lanes.acquired' | 'lanes.lost' | 'relay.breaker' | 'relay.published' | 'consumer.applied' | 'consumer.dead'

export interface DrilledProcess {
  readonly role: ProcessRole
  readonly child: Child
  /** Where its metrics are, once it is ready. */
  readonly metricsUrl: string | undefined
  /** Everything it was handed, in order. */
  readonly deliveries: readonly Delivered[]
  /** What was wrong with its end: it ended by itself, failed as it stopped, or had to be killed. */
  readonly failure: string | undefined
  /** Messages that it was handed more than once. */
  readonly redelivered: number
  /** What it said under this name. */
  signals<Name extends ReportedSignal>(name: Name): readonly Signals[Name][]
  /** Waits until it has reported the failpoint, in time. */
  reached(failpoint: string): Promise<void>
  /** Waits until it has reported the failpoint and was ended by SIGKILL; anything else is an error. */
  killedAt(failpoint: string): Promise<void>
  /** Asks it to stop, and waits until it has; rejects if that was not in order, or not in time. */
  stop(): Promise<void>
  /** Ends it by SIGKILL, which is then no failure of its own. */
  kill(): Promise<Exit>
}

const program = new URL(`../system/process-main${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url)
const { stopTimeoutMs, abortTimeoutMs } = defaults.run
/** Beyond the time after which the process gives up by itself, and says what did not stop. */
const patientStopMs = stopTimeoutMs + abortTimeoutMs + 20_000

export interface StartOptions {
  readonly settings: ProcessSettings
  readonly failpoint?: ArmedFailpoint | undefined
  /** How long it may take to be ready, and to reach a failpoint: one that lives and never does is an error. */
  readonly patienceMs: number
  /** How long it may take to stop; then it is killed, which is a failure. @default 45_000 */
  readonly stopMs?: number | undefined
  /** Another program in the place of ours. */
  readonly script?: URL | undefined
}

/** Starts it, and returns when it is ready to work. */
export async function startProcess(options: StartOptions): Promise<DrilledProcess> {
  const { settings, failpoint, patienceMs, stopMs = patientStopMs, script = program } = options
  const { role } = settings
  const inTime = <Said>(waiting: Promise<Said>, late: string): Promise<Said> => within(patienceMs, waiting, `The ${role} ${late}`)
  const child = startChild(script, { env: settingsEnvironment(settings), ...(failpoint === undefined ? {} : { failpoint }) })
  const heard = listenTo(child)
  const end = watchEnd(child, { role, stopMs, isDoomed: failpoint?.action === 'kill' })
  const saidReady = child.message<ProcessReport>((message) => message.ready !== undefined)
  const { ready } = await inTime(saidReady, 'was not ready').catch(async (error: unknown) => {
    // Nobody else knows of it.
    await child.kill()
    throw error
  })
  const reached = (name: string): Promise<void> => inTime(child.failpoint(name), `did not reach the failpoint "${name}"`)
  return {
    role,
    child,
    metricsUrl: ready?.metricsUrl,
    deliveries: heard.deliveries,
    get failure() {
      return end.failure
    },
    get redelivered() {
      return heard.redelivered
    },
    signals: <Name extends ReportedSignal>(name: Name) =>
      heard.said.filter((each) => each.name === name).map(({ event }) => event as unknown as Signals[Name]),
    reached,
    killedAt: async (name) => {
      await reached(name)
      const { signal, code } = await inTime(end.exited, `did not end at the failpoint "${name}"`)
      if (signal !== 'SIGKILL')
        throw new WaybillError('INTERNAL', `The ${role} was to be killed ${name}, but ended with ${signal ?? `code ${code}`}.`)
    },
    stop: end.stop,
    kill: end.kill,
  }
}

interface EndOptions {
  readonly role: ProcessRole
  readonly stopMs: number
  /** It is to be killed at a failpoint. */
  readonly isDoomed: boolean
}

interface End extends Pick<DrilledProcess, 'failure' | 'stop' | 'kill'> {
  readonly exited: Promise<Exit>
}

/** Tells an end that the drill wanted from every other one. */
function watchEnd(child: Child, { role, stopMs, isDoomed }: EndOptions): End {
  let isKilled = isDoomed
  let [isStopped, isLate, isOver] = [false, false, false]
  let failure: string | undefined
  const wrongWith = ({ code, signal }: Exit): string | undefined => {
    if (isStopped && code === 0) return undefined
    if (isLate && signal === 'SIGKILL') return `The ${role} did not stop within ${stopMs / 1_000} s, and was killed.`
    if (isKilled && signal === 'SIGKILL') return undefined
    const what = isStopped ? 'failed as it stopped' : 'ended by itself'
    return `The ${role} ${what} (${signal ?? `code ${code}`}): ${child.stderr.slice(-1_000)}`
  }
  const exited = child.exited.then((exit) => {
    isOver = true
    failure = wrongWith(exit)
    return exit
  })
  const askToStop = async (): Promise<void> => {
    isStopped = true
    child.thaw()
    child.send('stop')
    const impatience = setTimeout(() => {
      isLate = true
      void child.kill()
    }, stopMs)
    await exited
    clearTimeout(impatience)
  }
  return {
    exited,
    get failure() {
      return failure
    },
    stop: async () => {
      if (!isOver) await askToStop()
      if (failure !== undefined) throw new WaybillError('UNAVAILABLE', failure)
    },
    kill: () => {
      isKilled = true
      return child.kill()
    },
  }
}

interface HeardSoFar {
  readonly deliveries: readonly Delivered[]
  readonly said: readonly NonNullable<ProcessReport['signal']>[]
  readonly redelivered: number
}

/** Keeps what it reports, from now until its end. */
function listenTo(child: Child): HeardSoFar {
  const deliveries: Delivered[] = []
  const seen = new Set<string>()
  const said: NonNullable<ProcessReport['signal']>[] = []
  let redelivered = 0
  // Looked at one by one as they come; it fits none, so it listens until the end.
  const listening = child.message<ProcessReport>(({ delivered, signal }) => {
    if (signal !== undefined) said.push(signal)
    if (delivered === undefined) return false
    if (seen.has(delivered.messageId)) redelivered += 1
    seen.add(delivered.messageId)
    deliveries.push(delivered)
    return false
  })
  listening.catch(() => undefined)
  return {
    deliveries,
    said,
    get redelivered() {
      return redelivered
    },
  }
}

/** What is waited for, or an error that says what did not happen. */
async function within<Said>(ms: number, waiting: Promise<Said>, late: string): Promise<Said> {
  const { promise: over, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new WaybillError('TIMEOUT', `${late} within ${ms / 1_000} s.`)), ms)
  try {
    return await Promise.race([waiting, over])
  } finally {
    clearTimeout(timer)
  }
}
