import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { runLine } from '../../../test/setup/run-line.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { commands } from '../commands.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-with-schema-'))
afterAll(() => rm(folder, { recursive: true }))

/** The shell points at production, the configuration says staging. */
beforeAll(async () => {
  await migrate(db, { schema: 'waybill', service: 'orders', deploymentId: 'orders-production' })
  await writeFile(
    join(folder, 'waybill.config.ts'),
    `const never = () => { throw new Error('it went on') }
     export default {
       service: 'orders', deploymentId: 'orders-staging', streams: [],
       transport: never, consumers: never, backfills: { rows: never },
     }`,
  )
})

/** What each command that works on a schema is called with; `undefined` for those that say themselves whose schema it is. */
const lines: Readonly<Record<string, string | undefined>> = {
  dev: undefined,
  status: '',
  trace: 'r1',
  dashboard: '',
  'migrate up': '',
  'migrate status': undefined,
  'migrate adopt': undefined,
  'migrate roles': '--print',
  relay: '--once',
  backfill: 'rows',
  'outbox status': '',
  'outbox list': '',
  'outbox redrive': '--all',
  'outbox skip': '--all --yes',
  'outbox drop': '--all --yes',
  'outbox pause': '--stream account',
  'outbox resume': '--stream account',
  'outbox lanes': '--change 128',
  'outbox cdc': '',
  'outbox cdc on': '--slot s',
  'outbox cdc off': '--slot s',
  consume: '',
  pause: '--consumer books',
  resume: '--consumer books',
  rebuild: 'books --from earliest',
  replay: 'books --from earliest',
  'repair-gap': 'books',
  'dlq list': '',
  'dlq show': '--id 1',
  'dlq redrive': '--all',
  'dlq discard': '--all --yes',
  refused: '',
  doctor: undefined,
  'drill run': undefined,
}

test('every command that is told a deployment is in the list', () => {
  const pinned = Object.entries(commands).filter(([, { options }]) => 'deployment-id' in options && 'database-url' in options)
  expect(pinned.map(([words]) => words)).toEqual(Object.keys(lines))
})

test.for(Object.entries(lines).flatMap(([words, rest]) => (rest === undefined ? [] : [`${words} ${rest}`.trim()])))(
  '%s refuses the database of another deployment',
  async (line) => {
    const { code, out, err } = await runLine(line, { folder, env: { DATABASE_URL: database.url } })
    expect({ code, out }).toEqual({ code: 3, out: '' })
    expect(err).toContain(
      'The schema "waybill" is the deployment "orders-production", but this process is set to "orders-staging".',
    )
  },
)

test('and nothing was changed there', async () => {
  expect((await db.query('select action from waybill.audit_log')).rows).toEqual([])
})
