/**
 * Migrations as processes see them: the real program, started many times at once, on copies, and beside newer packages.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, inject, test } from 'vitest'

import { shippedMigrations } from '../../src/postgres/schema/migration-files.ts'
import { startPostgres } from '../../src/testing/servers/postgres.ts'
import { findSystemPostgres } from '../../src/testing/servers/postgres-binaries.ts'
import { createTestDatabase } from '../../src/testing/servers/test-database.ts'
import { testDatabase } from '../setup/test-database.ts'

const run = promisify(execFile)
const program = join(import.meta.dirname, '../../src/cli/main.ts')
const database = await testDatabase()
const names = shippedMigrations().map(({ name }) => name)
const installed = findSystemPostgres()[0]

interface Ended {
  readonly code: number
  readonly out: string
  readonly err: string
}

async function waybill(url: string, line: string): Promise<Ended> {
  try {
    const env = { DATABASE_URL: url, NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] }
    const { stdout, stderr } = await run(process.execPath, [program, ...line.split(' ')], { env })
    return { code: 0, out: stdout, err: stderr }
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string }
    return { code, out: stdout, err: stderr }
  }
}

test('ten processes migrate at once: each migration is applied once and all succeed; the next run does nothing', async () => {
  const ended = await Promise.all(Array.from({ length: 10 }, () => waybill(database.url, 'migrate up --service orders --json')))
  expect(ended.map(({ code, err }) => (code === 0 ? 0 : err))).toEqual(Array.from({ length: 10 }, () => 0))
  const results = ended.map(({ out }) => JSON.parse(out) as { applied: string[]; deploymentId: string })
  expect(results.flatMap(({ applied }) => applied)).toEqual(names)
  expect(new Set(results.map(({ deploymentId }) => deploymentId)).size).toBe(1)
  expect(await waybill(database.url, 'migrate up --service orders')).toMatchObject({
    code: 0,
    out: 'The schema is up to date.\n',
  })
})

test('an older process refuses a newer breaking schema', async () => {
  const schema = 'newer'
  await waybill(database.url, `migrate up --service orders --schema ${schema}`)
  await database.pool.query(
    `insert into newer.migration (number, name, checksum, breaking, applied_by) values (9000, '9000_drop_column', 'x', true, '9.0.0')`,
  )
  const refused = await waybill(database.url, `migrate up --service orders --schema ${schema}`)
  expect(refused).toMatchObject({
    code: 1,
    err: expect.stringMatching(/9000_drop_column, applied by waybill 9\.0\.0.*Upgrade this process/),
  })
})

test('a second service refuses the schema of the first', async () => {
  await waybill(database.url, 'migrate up --service orders --schema bound')
  const refused = await waybill(database.url, 'migrate up --service billing --schema bound')
  expect(refused).toMatchObject({
    code: 3,
    err: expect.stringContaining('Give each service a schema of its own (option schema)'),
  })
})

/** What a copy says, and what it takes to run on it. */
async function expectCopyThatCanBeAdopted(url: string): Promise<void> {
  const refused = await waybill(url, 'migrate status --service orders')
  expect(refused).toMatchObject({ code: 4, out: expect.stringContaining('This database is a copy or was restored') })
  expect(refused.out).toContain('waybill migrate adopt --schema waybill --service orders --yes')
  expect(await waybill(url, 'migrate up --service orders')).toMatchObject({ code: 3 })
  expect(await waybill(url, 'migrate adopt --service orders --yes')).toMatchObject({ code: 0 })
  expect(await waybill(url, 'migrate status --service orders')).toMatchObject({ code: 0 })
}

describe('a copy refuses to run until it is adopted', () => {
  test('when the server copied the database', async () => {
    const original = await createTestDatabase(inject('postgres'))
    await waybill(original.directUrl, 'migrate up --service orders')
    const copy = await createTestDatabase(inject('postgres'), { template: original.name })
    await expectCopyThatCanBeAdopted(copy.url)
    expect(await waybill(original.url, 'migrate status --service orders')).toMatchObject({ code: 0 })
    await copy.drop()
    await original.drop()
  })

  test.runIf(installed !== undefined)('when it was dumped and restored: beside the original, and in its place', async () => {
    await using server = await startPostgres({ binDir: installed?.binDir ?? '' })
    const original = await server.createDatabase('original')
    await waybill(original, 'migrate up --service orders')
    const dump = join(server.dataDir, '..', 'original.sql')
    await run(join(installed?.binDir ?? '', 'pg_dump'), ['--file', dump, original])
    const restore = (url: string): Promise<unknown> =>
      run(join(installed?.binDir ?? '', 'psql'), ['-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', dump, url])

    const copy = await server.createDatabase('copy')
    await restore(copy)
    await expectCopyThatCanBeAdopted(copy)

    await server.dropDatabase('original')
    await restore(await server.createDatabase('original'))
    await expectCopyThatCanBeAdopted(original)
  })
})
