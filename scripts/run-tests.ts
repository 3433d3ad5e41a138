/**
 * Runs vitest and gives back what became of every test.
 *
 * What Node makes of the sources is kept in .cache: tests start hundreds of processes, and each is up in half the time.
 */
import { existsSync, statfsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type CommandOptions, type CommandResult, repositoryRoot, runCommand } from './run-command.ts'

export interface TestRun extends Pick<CommandResult, 'signal' | 'told'> {
  /** Without files if vitest did not get far enough to report; its exit code tells the rest. */
  readonly report: Report
  readonly exitCode: number
  /** What it printed, unless that was passed through. */
  readonly output: string
}

export interface Report {
  readonly files: readonly FileReport[]
}

export interface FileReport {
  readonly path: string
  /** Why it could not be loaded or set up. */
  readonly errors: readonly string[]
  readonly tests: readonly TestReport[]
}

export interface TestReport {
  readonly name: string
  readonly state: string
}

const compiled = process.env['NODE_COMPILE_CACHE'] ?? join(repositoryRoot, '.cache', 'compiled')

export async function runTests(args: readonly string[], { cwd, env, passThrough = false }: CommandOptions): Promise<TestRun> {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-test-'))
  try {
    const path = join(folder, 'report.json')
    const reporters = ['--reporter=default', '--reporter=./test/setup/reporter.ts']
    const command = ['vitest', 'run', ...reporters, ...args]
    const { code, output, signal, told } = await runCommand(command, {
      ...(cwd === undefined ? {} : { cwd }),
      env: { NODE_COMPILE_CACHE: compiled, ...servicesInMemory(), ...env, WAYBILL_REPORT: path },
      passThrough,
    })
    const text = await readFile(path, 'utf8').catch(() => undefined)
    const report = text === undefined ? { files: [] } : (JSON.parse(text) as Report)
    return { report, exitCode: code, output, signal, told }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

const memory = '/dev/shm'
const roomForServices = 8 * 1024 ** 3

/** Where the machine has enough memory, the files of the services that tests start are kept there, unless somebody chose a place. */
function servicesInMemory(): Readonly<Record<string, string>> {
  if (process.env['WAYBILL_SERVICE_FOLDER'] !== undefined || !existsSync(memory)) return {}
  const { bavail, bsize } = statfsSync(memory)
  const room = Math.min(bavail * bsize, process.availableMemory())
  return room < roomForServices ? {} : { WAYBILL_SERVICE_FOLDER: memory }
}
