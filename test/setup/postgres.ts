/**
 * One PostgreSQL for a whole test run; each test file makes a private database on it (see test-database.ts).
 *
 * The environment chooses which one, so that the same tests prove the same things everywhere:
 *   WAYBILL_TEST_DATABASE_URL  a server that runs already; the role must be able to create databases
 *   WAYBILL_TEST_POSTGRES      `embedded` (default), or the folder of an installed PostgreSQL's programs
 *   WAYBILL_TEST_PGBOUNCER=1   tests reach the server through PgBouncer in transaction mode
 */
import type { TestProject } from 'vitest/node'

import { startPostgres } from '../../src/testing/embedded-postgres.ts'
import { startPgBouncer } from '../../src/testing/pgbouncer.ts'

/** How test files reach the server. */
export interface ProvidedPostgres {
  /** The way under test: through the pooler where there is one. */
  readonly url: string
  /** Always straight to the server: for session state, LISTEN, and the making of databases. */
  readonly directUrl: string
  /** The server's version, or `external` for one that we did not start. */
  readonly version: string
  readonly via: 'direct' | 'pgbouncer'
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
  project.provide('postgres', {
    url: bouncer?.url(directUrl) ?? directUrl,
    directUrl,
    version: server?.version ?? 'external',
    via: bouncer === undefined ? 'direct' : 'pgbouncer',
  })
  return async () => {
    await bouncer?.stop()
    await server?.stop('immediate')
  }
}
