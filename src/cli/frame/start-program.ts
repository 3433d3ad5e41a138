/**
 * Starts this program again beside itself, told line by line what it says. It is started anew whenever a file that it imports
 * changes (Node's watch mode), and it ends when its parent does, however that ends.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { WaybillError } from '../../core/errors.ts'
import { startWatchdog } from '../../testing/process/watchdog.ts'

export interface ProgramOptions {
  /** The words that start the program: Node, its options, the script. */
  readonly program: readonly string[]
  /** The command line. */
  readonly words: readonly string[]
  /** Added to the environment. */
  readonly env: Readonly<Record<string, string>>
  readonly onLine: (line: string) => void
}

export interface RunningProgram {
  /** Resolves with its exit code, or the signal that ended it. */
  readonly ended: Promise<number | string>
  /** Asks it to end, and waits until it has. */
  stop(): Promise<void>
}

/** It has its own time-outs for the work in hand; this is longer. */
const patienceMs = 40_000

export function startProgram({ program, words, env, onLine }: ProgramOptions): RunningProgram {
  const [node = process.execPath, ...rest] = program
  const child = spawn(node, ['--watch', '--watch-preserve-output', ...rest, ...words], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  child.on('error', () => {})
  if (child.pid === undefined) throw new WaybillError('UNAVAILABLE', `${node} could not be started.`)
  const watchdog = startWatchdog({ signal: 'TERM' })
  watchdog.watch(child)
  for (const input of [child.stdout, child.stderr]) createInterface({ input }).on('line', onLine)
  const ended = once(child, 'close').then(([code, signal]: (number | string | null)[]) => {
    watchdog.dismiss()
    return code ?? signal ?? 'unknown'
  })
  return {
    ended,
    stop: async () => {
      child.kill('SIGTERM')
      const impatience = setTimeout(() => child.kill('SIGKILL'), patienceMs)
      await ended
      clearTimeout(impatience)
    },
  }
}
