/**
 * Runs a program of this repository's toolchain and gives back its exit code, what it printed and how long it took.
 *
 * Programs are looked up in node_modules/.bin first, so the pinned Node and the pinned tools are used even on a machine
 * that has others. The child reads no standard input, so nothing waits for an answer that will not come.
 */
import { spawn } from 'node:child_process'
import { constants } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { stripVTControlCharacters } from 'node:util'

export interface CommandResult {
  /** Never 0 for one that died by a signal. */
  readonly code: number
  /** What it died by. */
  readonly signal: NodeJS.Signals | undefined
  /** What we ourselves were told to end by meanwhile, and passed on. */
  readonly told: NodeJS.Signals | undefined
  /** Without colours: it is read by programs, and some tools colour what they print in CI. */
  readonly output: string
  readonly durationMs: number
}

export interface CommandOptions {
  /** The folder to run in. @default the repository's root */
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  /** Print as it comes instead of collecting; a signal that would end us ends the child instead. @default false */
  readonly passThrough?: boolean
}

export const repositoryRoot: string = fileURLToPath(new URL('..', import.meta.url))

const endings = ['SIGHUP', 'SIGINT', 'SIGTERM'] as const

/** The exit code that says by which signal a process ended. */
export function exitCodeOf(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal]
}

export async function runCommand(command: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const [program, ...args] = command
  if (program === undefined) throw new Error('No program to run.')
  const startedAt = performance.now()
  const { promise, resolve, reject } = Promise.withResolvers<readonly [number | null, NodeJS.Signals | null]>()
  const child = spawn(program, args, {
    cwd: options.cwd ?? repositoryRoot,
    env: { ...process.env, ...options.env, PATH: pathWithTools() },
    stdio: ['ignore', options.passThrough === true ? 'inherit' : 'pipe', options.passThrough === true ? 'inherit' : 'pipe'],
  })
  const chunks: Buffer[] = []
  child.stdout?.on('data', (chunk: Buffer) => chunks.push(chunk))
  child.stderr?.on('data', (chunk: Buffer) => chunks.push(chunk))
  child.once('error', reject)
  child.once('close', (code, signal) => resolve([code, signal]))
  let told: NodeJS.Signals | undefined
  const pass = (signal: NodeJS.Signals): void => void child.kill((told = signal))
  if (options.passThrough === true) for (const signal of endings) process.on(signal, pass)
  try {
    const [code, signal] = await promise
    const output = stripVTControlCharacters(Buffer.concat(chunks).toString())
    return { code: code ?? 1, signal: signal ?? undefined, told, output, durationMs: performance.now() - startedAt }
  } finally {
    for (const signal of endings) process.off(signal, pass)
  }
}

function pathWithTools(): string {
  return [join(repositoryRoot, 'node_modules', '.bin'), process.env['PATH'] ?? ''].join(delimiter)
}
