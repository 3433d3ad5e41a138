/**
 * One PostgreSQL for a whole test run; each test file makes a private database on it (see test-database.ts).
 *
 * The environment chooses which one, so that the same tests prove the same things everywhere:
 *   WAYBILL_TEST_DATABASE_URL  a server that runs already; the role must be able to create databases
 *   WAYBILL_TEST_POSTGRES      `embedded` (default), or the folder of an installed PostgreSQL's programs
 *   WAYBILL_TEST_PGBOUNCER=1   tests reach the server through PgBouncer in transaction mode
 */
import { randomBytes } from 'node:crypto'
import type { TestProject } from 'vitest/node'

import { startPostgres } from '../../src/testing/servers/postgres.ts'
import { startPgBouncer } from '../../src/testing/servers/pgbouncer.ts'
import { execute } from '../../src/testing/servers/test-database.ts'

/** How test files reach the server. */
export interface ProvidedPostgres {
  /** The way under test: through the pooler where there is one. */
  readonly url: string
  /** Always straight to the server: for session state, LISTEN, and the making of databases. */
  readonly directUrl: string
  /** The server's version, or `external` for one that we did not start. */
  readonly version: string
  readonly via: 'direct' | 'pgbouncer'
  /** The database that those of the files are copies of, once the first of them has made it (see ready-schemas.ts). */
  readonly template: string
}

declare module 'vitest' {
  export interface ProvidedContext {
    postgres: ProvidedPostgres
  }
}

export async function setup(project: Pick<TestProject, 'provide'>): Promise<() => Promise<void>> {
  const given = process.env['WAYBILL_TEST_DATABASE_URL']
  const chosen = process.env['WAYBILL_TEST_POSTGRES'] ?? 'embedded'
  const server = given === undefined ? await startPostgres(chosen === 'embedded' ? {} : { binDir: chosen }) : undefined
  const directUrl = given ?? server?.url ?? ''
  const bouncer = process.env['WAYBILL_TEST_PGBOUNCER'] === '1' ? await startPgBouncer(directUrl) : undefined
  const template = `template_${randomBytes(6).toString('hex')}`
  project.provide('postgres', {
    url: bouncer?.url(directUrl) ?? directUrl,
    directUrl,
    version: server?.version ?? 'external',
    via: bouncer === undefined ? 'direct' : 'pgbouncer',
    template,
  })
  return async () => {
    await bouncer?.stop()
    if (given !== undefined) await execute(given, `drop database if exists ${template}`)
    await server?.stop('immediate')
  }
}
