/**
 * The private database of a test file: `const db = await testDatabase()` at the top of the file.
 *
 * It is on the server that the run was started with (see postgres.ts) and is removed when the file is done.
 */
import { afterAll, inject } from 'vitest'

import { createTestDatabase } from '../../src/testing/test-database.ts'
import type { TestDatabase } from '../../src/testing/test-database.ts'
import type { ProvidedPostgres } from './postgres.ts'

export interface FileDatabase extends TestDatabase, Pick<ProvidedPostgres, 'version' | 'via'> {}

/** Makes a database for the calling test file, or a copy of the one named as the template. */
export async function testDatabase(options: { readonly template?: string } = {}): Promise<FileDatabase> {
  const server = inject('postgres')
  const database = await createTestDatabase(server, options)
  afterAll(() => database.drop())
  return { ...database, version: server.version, via: server.via }
}
