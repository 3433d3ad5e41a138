/**
 * Runs a program of this repository's toolchain and gives back its exit code, what it printed and how long it took.
 *
 * Programs are looked up in node_modules/.bin first, so the pinned Node and the pinned tools are used even on a machine
 * that has others. The child reads no standard input, so nothing waits for an answer that will not come.
 */
import { spawn } from 'node:child_process'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { stripVTControlCharacters } from 'node:util'

export interface CommandResult {
  readonly code: number
  /** Without colours: it is read by programs, and some tools colour what they print in CI. */
  readonly output: string
  readonly durationMs: number
}

export interface CommandOptions {
  /** The folder to run in. @default the repository's root */
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  /** Print as it comes instead of collecting. @default false */
  readonly passThrough?: boolean
}

export const repositoryRoot: string = fileURLToPath(new URL('..', import.meta.url))

export async function runCommand(command: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
  const [program, ...args] = command
  if (program === undefined) throw new Error('No program to run.')
  const startedAt = performance.now()
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  const child = spawn(program, args, {
    cwd: options.cwd ?? repositoryRoot,
    env: { ...process.env, ...options.env, PATH: pathWithTools() },
    stdio: ['ignore', options.passThrough === true ? 'inherit' : 'pipe', options.passThrough === true ? 'inherit' : 'pipe'],
  })
  const chunks: Buffer[] = []
  child.stdout?.on('data', (chunk: Buffer) => chunks.push(chunk))
  child.stderr?.on('data', (chunk: Buffer) => chunks.push(chunk))
  child.once('error', reject)
  // A child that died by a signal has no code; it must never count as success.
  child.once('close', (code) => resolve(code ?? 1))
  const code = await promise
  return { code, output: stripVTControlCharacters(Buffer.concat(chunks).toString()), durationMs: performance.now() - startedAt }
}

function pathWithTools(): string {
  return [join(repositoryRoot, 'node_modules', '.bin'), process.env['PATH'] ?? ''].join(delimiter)
}
