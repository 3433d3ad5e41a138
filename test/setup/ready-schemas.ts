/**
 * Schemas for fixtures that are migrated before anybody wants them: a run takes many hundreds, and each migration costs the server about
 * thirty times what a copy does.
 *
 * The databases of all test files are copies of one template, which the first of them makes. A fixture takes the next name and calls
 * `migrate`, as a service would: that stamps the schema if the template had it, and makes it if not.
 */
import pg from 'pg'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { createTestDatabase, execute } from '../../src/testing/servers/test-database.ts'
import type { ProvidedPostgres } from './postgres.ts'

/** Enough for two files of three; a copy of a schema that nobody takes costs a thirtieth of a migration. */
const inTemplate = 8

let taken = 0

/** A name that no other fixture of this file has. */
export function nextSchema(): string {
  return schemaName((taken += 1))
}

/** Makes the template, unless another file of this run did or does. */
export async function makeTemplate({ directUrl, template }: ProvidedPostgres): Promise<void> {
  const client = new pg.Client({ connectionString: directUrl })
  await client.connect()
  try {
    await client.query('begin')
    await client.query('select pg_advisory_xact_lock(hashtext($1))', [template])
    const { rowCount } = await client.query('select from pg_database where datname = $1', [template])
    if (rowCount === 0) await migrateTemplate(directUrl, template)
    await client.query('commit')
  } finally {
    await client.end()
  }
}

/** Under its name only once it is whole. */
async function migrateTemplate(directUrl: string, template: string): Promise<void> {
  const { name, pool } = await createTestDatabase({ url: directUrl, directUrl })
  for (let number = 1; number <= inTemplate; number += 1) {
    const schema = schemaName(number)
    await migrate(fromPg(pool), { schema, service: 'template' })
    // A copy is somebody's only once it is stamped where it is.
    await pool.query(`delete from ${schema}.deployment`)
  }
  await pool.end()
  await execute(directUrl, `alter database ${name} rename to ${template}`)
}

function schemaName(number: number): string {
  return `fixture_${number}`
}
