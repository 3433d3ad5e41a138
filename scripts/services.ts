/**
 * What tests may need from the machine, by the suffix that says so, and how to get it where it is missing.
 *
 * PostgreSQL and the local Pub/Sub server come with the repository, so `*.pg.test.ts` and `*.broker.test.ts` always run; a broker
 * that does not come with it has a name of its own in front (`*kafka.broker.test.ts`).
 */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../src/testing/process/find-program.ts'
import { missingForKafka } from '../src/testing/servers/kafka-programs.ts'
import { repositoryRoot } from './run-command.ts'

export interface Service {
  readonly name: string
  /** The test files that need it. */
  readonly files: RegExp
  /** The same, as the glob vitest understands. */
  readonly glob: string
  /** What is missing on this machine and how to get it, or undefined where all is there. */
  readonly missing: () => string | undefined
}

export const services: readonly Service[] = [
  service('redis', 'redis.test.ts', () => program('redis-server', 'apt-get install redis-server')),
  service('pgbouncer', 'pgbouncer.test.ts', () => program('pgbouncer', 'apt-get install pgbouncer')),
  service('kafka', 'kafka.broker.test.ts', () => (process.env['KAFKA_BROKERS'] === undefined ? missingForKafka() : undefined)),
  service('java', 'java.test.ts', () => missingForKafka()),
  service('browser', 'browser.test.ts', () => chromium()),
  service('promtool', 'promtool.test.ts', () => program('promtool', 'apt-get install prometheus')),
  service('python', 'python.test.ts', () => program('python3', 'apt-get install python3')),
  service('spin', 'spin.test.ts', () => program('spin', 'apt-get install spin') ?? program('gcc', 'apt-get install gcc')),
]

/** Folders with the programs of every PostgreSQL that Debian's packages installed, newest first. */
export function installedPostgresFolders(): string[] {
  const base = '/usr/lib/postgresql'
  if (!existsSync(base)) return []
  const versions = readdirSync(base).filter((name) => existsSync(join(base, name, 'bin', 'initdb')))
  return versions.toSorted((a, b) => Number(b) - Number(a)).map((version) => join(base, version, 'bin'))
}

function service(name: string, suffix: string, missing: Service['missing']): Service {
  return { name, files: new RegExp(`(?:^|[./])${suffix.replaceAll('.', '\\.')}$`), glob: `**/{*.,}${suffix}`, missing }
}

function program(name: string, remedy: string): string | undefined {
  return findProgram(name) === undefined ? `${name} is not on this machine; ${remedy}` : undefined
}

function chromium(): string | undefined {
  if (existsSync(join(repositoryRoot, 'node_modules', '@sparticuz', 'chromium'))) return undefined
  const found = ['chromium', 'chromium-browser', 'google-chrome'].some((name) => findProgram(name) !== undefined)
  return found ? undefined : 'no Chromium on this machine; apt-get install chromium'
}
