/**
 * A private database for one test file, on a server that many files share.
 *
 * Files can then run in parallel and name their schemas and tables as they like. Roles belong to the whole server:
 * give them names that contain the database's.
 */
import { randomBytes } from 'node:crypto'

import pg from 'pg'

import { sqlState } from '../../postgres/query/sql-state.ts'
import { eventually } from '../kit/eventually.ts'

/** How to reach the server, through a pooler perhaps. */
export interface TestServer {
  readonly url: string
  readonly directUrl: string
}

/** A database that nobody else uses. */
export interface TestDatabase {
  readonly name: string
  /** The way under test: through the pooler where there is one. */
  readonly url: string
  /** Always straight to the server. */
  readonly directUrl: string
  /** Connects through `url` when first used. */
  readonly pool: pg.Pool
  /** Closes the pool and removes the database with whoever is connected to it. */
  drop(): Promise<void>
}

/** Makes an empty database, or a copy of the one named as the template. */
export async function createTestDatabase(
  server: TestServer,
  options: { readonly template?: string } = {},
): Promise<TestDatabase> {
  const name = `test_${randomBytes(6).toString('hex')}`
  const { template = 'template0' } = options
  // Files that are copied cost the server a third of blocks that are written to its log.
  const from = `template "${template.replaceAll('"', '""')}" strategy file_copy`
  await execute(server.directUrl, `create database ${name} ${from}`)
  const url = withDatabase(server.url, name)
  const pool = new pg.Pool({ connectionString: url })
  // Idle connections break when a test stops the server; whoever uses one next is told.
  pool.on('error', () => {})
  return {
    name,
    url,
    directUrl: withDatabase(server.directUrl, name),
    pool,
    async drop() {
      await pool.end()
      await withClient(server.directUrl, async (client) => {
        // A pooler keeps its connections for a while, and bears to lose them.
        await untilDeserted(client, name, server.url === server.directUrl ? 30_000 : 2_000)
        await dropDatabase(client, name)
      })
    },
  }
}

/** The address of another database of the same server. */
export function withDatabase(url: string, database: string): string {
  const address = new URL(url)
  address.pathname = `/${encodeURIComponent(database)}`
  return address.href
}

/** Runs one statement on a connection of its own. */
export async function execute(url: string, statement: string): Promise<void> {
  await withClient(url, (client) => client.query(statement))
}

/**
 * A closed connection is gone a moment later. If it is cut off before that, its pool reports an error to nobody, which ends the
 * process. Who has forgotten to close one waits here in vain, and is cut off.
 */
async function untilDeserted(client: pg.Client, database: string, timeoutMs: number): Promise<void> {
  const look = async (): Promise<boolean> => {
    const { rowCount } = await client.query('select from pg_stat_activity where datname = $1', [database])
    return rowCount === 0
  }
  await eventually(look, { timeoutMs, intervalMs: 5 }).catch(() => undefined)
}

/** The server waits five seconds for those whom it cuts off to be gone. On a busy machine that can be too short. */
async function dropDatabase(client: pg.Client, database: string): Promise<void> {
  const ended = await eventually(async () => {
    try {
      await client.query(`drop database if exists ${database} with (force)`)
      return { error: undefined }
    } catch (error) {
      return sqlState(error) !== '55006' && { error: error as Error }
    }
  })
  if (ended.error !== undefined) throw ended.error
}

async function withClient(url: string, work: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  // One that breaks fails the statement; without a listener it would end the process.
  client.on('error', () => undefined)
  await client.connect()
  try {
    await work(client)
  } finally {
    await client.end()
  }
}
