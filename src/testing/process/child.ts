/**
 * A child process that a test talks to, crashes and freezes.
 *
 * It runs a TypeScript file with the Node that runs the test. What it says is kept from the first word, so waiting
 * for something that was said already returns at once; waiting for something that can no longer come fails with the
 * child's own error output. A parent that dies takes the child with it.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

import { WaybillError } from '../../core/errors.ts'
import { failpointVariable, type ArmedFailpoint } from '../faults/failpoint.ts'
import { startWatchdog } from './watchdog.ts'

export interface ChildOptions {
  /** @default [] */
  readonly args?: readonly string[]
  /** Added to the environment of the parent. @default {} */
  readonly env?: Readonly<Record<string, string>>
  /** The failpoint that `createFailpoints()` in the child finds armed. */
  readonly failpoint?: ArmedFailpoint
}

/** How a process ended: by a code or by a signal. */
export interface Exit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** A running child. */
export interface Child {
  readonly pid: number
  /** What it wrote to its standard error so far. */
  readonly stderr: string
  /** Resolves when it has ended and everything it said was heard. */
  readonly exited: Promise<Exit>
  /** Sends it a message over the channel; it gets it by `process.on('message')`. */
  send(message: unknown): void
  /** Waits for the first message, past ones included, that fits. */
  message<T = unknown>(fits?: (message: T) => boolean): Promise<T>
  /** Waits for the first line of its standard output, past ones included, that fits. */
  line(fits: string | RegExp): Promise<string>
  /** Waits until it reports that the failpoint fired. */
  failpoint(name: string): Promise<void>
  /** Ends it, by SIGKILL unless told otherwise, and waits for the end. */
  kill(signal?: NodeJS.Signals): Promise<Exit>
  /** Stops it as a long pause would: it keeps its connections and does nothing. */
  freeze(): void
  /** Lets a frozen child go on. */
  thaw(): void
  [Symbol.asyncDispose](): Promise<void>
}

/** Starts a script, given as the URL of a TypeScript or JavaScript file. */
export function startChild(script: URL, { args = [], env = {}, failpoint }: ChildOptions = {}): Child {
  const armed = failpoint === undefined ? {} : { [failpointVariable]: JSON.stringify(failpoint) }
  const child = spawn(process.execPath, [fileURLToPath(script), ...args], {
    env: { ...process.env, ...env, ...armed },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  // A caller that waits for an answer is told of the end; a message that came too late is no further news.
  child.on('error', () => {})
  const { pid, stdout, stderr: errors } = child
  if (pid === undefined || stdout === null || errors === null)
    throw new WaybillError('UNAVAILABLE', `The child process ${script.href} could not be started.`)
  const watchdog = startWatchdog({ signal: 'KILL' })
  watchdog.watch(child)

  const messages = new Heard<unknown>()
  const lines = new Heard<string>()
  let stderr = ''
  child.on('message', (message) => messages.add(message))
  createInterface({ input: stdout }).on('line', (line) => lines.add(line))
  errors.setEncoding('utf8').on('data', (text: string) => (stderr += text))

  const exited = ending(child).then((exit) => {
    watchdog.dismiss()
    const end = new WaybillError(
      'UNAVAILABLE',
      `The child process ended (${exit.signal ?? `code ${exit.code}`}) before it said that. Its error output:\n${stderr.slice(-4_000)}`,
    )
    messages.close(end)
    lines.close(end)
    return exit
  })
  const kill = async (signal: NodeJS.Signals = 'SIGKILL'): Promise<Exit> => {
    child.kill(signal)
    return exited
  }
  return {
    pid,
    get stderr() {
      return stderr
    },
    exited,
    // A child that was just killed cannot be told anything; `exited` says so, not an error out of nowhere.
    send: (message) => void (child.connected && child.send(message as object, () => undefined)),
    message: <T>(fits: (message: T) => boolean = () => true) => messages.first((message) => fits(message as T)) as Promise<T>,
    line: (fits) => lines.first((line) => (typeof fits === 'string' ? line.includes(fits) : fits.test(line))),
    async failpoint(name) {
      await messages.first((message) => (message as { failpoint?: unknown } | null)?.failpoint === name)
    },
    kill,
    freeze: () => void child.kill('SIGSTOP'),
    thaw: () => void child.kill('SIGCONT'),
    [Symbol.asyncDispose]: async () => void (await kill()),
  }
}

/** A process can be gone before its last words are read, so the ends of all its channels are waited for. */
async function ending(child: ChildProcess): Promise<Exit> {
  const [[code, signal]] = await Promise.all([once(child, 'close'), once(child, 'disconnect')])
  return { code, signal }
}

/**
 * Everything that was said so far, and the callers that still wait for something.
 *
 * Nothing is missed by asking late, and nobody waits for ever: closing fails all who wait and all who ask later for
 * something that was not said.
 */
interface Waiting<T> {
  readonly fits: (said: T) => boolean
  readonly resolve: (said: T) => void
  readonly reject: (reason: Error) => void
}

class Heard<T> {
  readonly #said: T[] = []
  #waiting: Waiting<T>[] = []
  #end: Error | undefined

  add(said: T): void {
    this.#said.push(said)
    const served = this.#waiting.filter((each) => each.fits(said))
    this.#waiting = this.#waiting.filter((each) => !served.includes(each))
    for (const each of served) each.resolve(said)
  }

  /** Resolves with the first thing said that fits, past ones included. */
  first(fits: (said: T) => boolean): Promise<T> {
    const index = this.#said.findIndex(fits)
    if (index !== -1) return Promise.resolve(this.#said[index] as T)
    if (this.#end !== undefined) return Promise.reject(this.#end)
    return new Promise((resolve, reject) => this.#waiting.push({ fits, resolve, reject }))
  }

  close(end: Error): void {
    this.#end = end
    for (const each of this.#waiting) each.reject(end)
    this.#waiting = []
  }
}
