/**
 * A process of the system as a drill sees it: what it reported so far, and the means to wait for more.
 */
import { WaybillError } from '../core/errors.ts'
import type { Signals } from '../core/signals.ts'
import { startChild, type Child } from '../testing/child.ts'
import type { ArmedFailpoint } from '../testing/failpoint.ts'
import type { ProcessReport, ProcessRole, ProcessSettings } from './drill-process.ts'
import { settingsEnvironment } from './told-settings.ts'

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
  /** Why it ended by itself, which it never should. */
  readonly failure: string | undefined
  /** Messages that it was handed more than once. */
  readonly redelivered: number
  /** What it said under this name. */
  signals<Name extends ReportedSignal>(name: Name): readonly Signals[Name][]
  /** Waits until it has reported the failpoint and was ended by SIGKILL; anything else is an error. */
  killedAt(failpoint: string): Promise<void>
  /** Asks it to stop, and waits until it has. */
  stop(): Promise<void>
}

const program = new URL(`./drill-process-main${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url)
const stopMs = 15_000

export interface StartOptions {
  readonly settings: ProcessSettings
  readonly failpoint?: ArmedFailpoint | undefined
  /** Another program in the place of ours. */
  readonly script?: URL | undefined
}

/** Starts it, and returns when it is ready to work. */
export async function startProcess({ settings, failpoint, script = program }: StartOptions): Promise<DrilledProcess> {
  const child = startChild(script, { env: settingsEnvironment(settings), ...(failpoint === undefined ? {} : { failpoint }) })
  const deliveries: Delivered[] = []
  const seen = new Set<string>()
  const said: NonNullable<ProcessReport['signal']>[] = []
  let redelivered = 0
  let isOver = false
  let failure: string | undefined
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
  const ended = child.exited.then((exit) => {
    isOver = true
    if (exit.code !== null && exit.code !== 0)
      failure = `the ${settings.role} ended by itself (code ${exit.code}): ${child.stderr.slice(-1_000)}`
    return exit
  })
  const { ready } = await child.message<ProcessReport>((message) => message.ready !== undefined)
  return {
    role: settings.role,
    child,
    metricsUrl: ready?.metricsUrl,
    deliveries,
    get failure() {
      return failure
    },
    get redelivered() {
      return redelivered
    },
    signals: <Name extends ReportedSignal>(name: Name) =>
      said.filter((each) => each.name === name).map(({ event }) => event as unknown as Signals[Name]),
    killedAt: async (name) => {
      await child.failpoint(name)
      const { signal, code } = await ended
      if (signal !== 'SIGKILL')
        throw new WaybillError(
          'INTERNAL',
          `The ${settings.role} was to be killed ${name}, but ended with ${signal ?? `code ${code}`}.`,
        )
    },
    stop: async () => {
      if (isOver) return
      child.thaw()
      child.send('stop')
      const impatience = setTimeout(() => void child.kill(), stopMs)
      await ended
      clearTimeout(impatience)
    },
  }
}
