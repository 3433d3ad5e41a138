/**
 * The private database of a test file: `const db = await testDatabase()` at the top of the file.
 *
 * It is on the server that the run was started with (see postgres.ts) and is removed when the file is done.
 */
import { afterAll, inject } from 'vitest'

import { sqlState } from '../../src/postgres/query/sql-state.ts'
import { createTestDatabase } from '../../src/testing/servers/test-database.ts'
import type { TestDatabase } from '../../src/testing/servers/test-database.ts'
import type { ProvidedPostgres } from './postgres.ts'
import { makeTemplate } from './ready-schemas.ts'

export interface FileDatabase extends TestDatabase, Pick<ProvidedPostgres, 'version' | 'via'> {}

/** Makes a database for the calling test file. All that is in it are the schemas that fixtures take (see ready-schemas.ts). */
export async function testDatabase(): Promise<FileDatabase> {
  const server = inject('postgres')
  const database = await copyOfTemplate(server).catch(async (error: unknown) => {
    if (sqlState(error) !== noSuchDatabase) throw error
    await makeTemplate(server)
    return await copyOfTemplate(server)
  })
  afterAll(() => database.drop())
  return { ...database, version: server.version, via: server.via }
}

const noSuchDatabase = '3D000'

function copyOfTemplate(server: ProvidedPostgres): Promise<TestDatabase> {
  return createTestDatabase(server, { template: server.template })
}
