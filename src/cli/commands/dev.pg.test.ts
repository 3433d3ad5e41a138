import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

import { outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrationStatus } from '../../postgres/schema/status.ts'
import { migrate } from '../../postgres/schema/migrate.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-dev-given-'))
const stopped = AbortSignal.abort()

/** Neither relay nor consumers: what it does before it starts them is all that these tests are about. */
const config = (more: string): string => `export default { service: 'test', ${more} prepare: ({ db, schema }) =>
  db.query('create table if not exists ' + schema + '_prepared ()') }`

beforeAll(async () => {
  await writeFile(join(folder, 'waybill.config.ts'), config(''))
  await writeFile(join(folder, 'production.config.ts'), config(`environment: 'production',`))
  await migrate(db, { schema: 'live', service: 'test', deploymentId: 'eu-production-1' })
})
afterAll(() => rm(folder, { recursive: true }))

const waybill = (words: string, env: Readonly<Record<string, string>> = {}): Promise<Ended> =>
  runLine(words, { folder, env: { DATABASE_URL: database.url, ...env }, signal: stopped })
const isPrepared = async (schema: string): Promise<boolean> =>
  (await db.query(`select from pg_class where relname = '${schema}_prepared'`)).rows.length === 1
const deploymentOf = async (schema: string): Promise<string | undefined> =>
  (await migrationStatus(db, { schema })).deployment?.deploymentId

test.each([
  { sign: 'NODE_ENV', words: '', env: { NODE_ENV: 'production' }, says: 'its environment is "production"' },
  { sign: 'the configuration', words: ' --config production.config.ts', env: {}, says: 'its environment is "production"' },
  { sign: 'the stamp of the schema', words: ' --schema live', env: {}, says: 'its deployment is "eu-production-1"' },
])('a database that calls itself production by $sign is refused, whatever was said', async ({ words, env, says }) => {
  for (const yes of ['', ' --yes']) {
    const { code, err } = await waybill(`dev${words}${yes}`, env)
    expect(code).toBe(3)
    expect(err).toContain(`This stack calls itself production: ${says}.`)
  }
  expect([await isPrepared('live'), await isPrepared('waybill')]).toEqual([false, false])
})

test('a schema that others made is not touched without a yes, and can be named as one for development once', async () => {
  const { outbox, publish, dispatch } = await outboxFixture(db)
  const { schema } = outbox.tables
  await publish('a', 'one')
  const refused = await waybill(`dev --schema ${schema}`)
  expect(refused.code).toBe(3)
  expect(refused.err).toContain(`is the deployment "${await deploymentOf(schema)}", which dev did not make`)
  expect(await isPrepared(schema)).toBe(false)
  expect(await dispatch()).toHaveLength(1)

  const stamp = await deploymentOf(schema)
  expect(await waybill(`dev --schema ${schema} --yes`)).toMatchObject({ code: 0, out: 'Ended.\n' })
  expect([await isPrepared(schema), await deploymentOf(schema)]).toEqual([true, stamp])
  const [, advice = ''] = /say so once: waybill (.*)$/m.exec(refused.err) ?? []
  expect(await waybill(advice)).toMatchObject({ code: 0 })
  expect(await waybill(`dev --schema ${schema}`)).toMatchObject({ code: 0 })
})

test('a schema that dev made is used again and again, with the events that wait in it', async () => {
  expect(await waybill('dev --schema mine')).toMatchObject({ code: 0 })
  expect(await deploymentOf('mine')).toBe('dev')
  await db.query(`select mine.add_event('video.events', 'video', 'a', 'Seen', convert_to('{}', 'UTF8'))`)
  expect(await waybill('dev --schema mine')).toMatchObject({ code: 0 })
  expect((await db.query('select from mine.outbox_dispatch')).rows).toHaveLength(1)
})

test('a deployment that the configuration names is the one that dev stamps', async () => {
  expect(await waybill('dev --schema named --deployment-id ann-local')).toMatchObject({ code: 0 })
  expect(await deploymentOf('named')).toBe('ann-local')
  expect(await waybill('dev --schema named')).toMatchObject({ code: 0 })
})

test('a host among the parameters of the address counts as the one that is connected to', async () => {
  const { code, err } = await waybill('dev', { DATABASE_URL: 'postgres://ann@localhost/prod?host=db.example.com' })
  expect(code).toBe(3)
  expect(err).toContain('The database is on db.example.com')
})

test('what it says at the end holds no password', async () => {
  const url = new URL(database.url)
  url.password ||= 'canary-password'
  const { code, out, err } = await waybill('dev --schema mine --json', { DATABASE_URL: url.href })
  expect({ code, text: out + err }).toEqual({ code: 0, text: expect.stringContaining(':***@') as string })
  expect(out + err).not.toContain(`:${url.password}@`)
})
