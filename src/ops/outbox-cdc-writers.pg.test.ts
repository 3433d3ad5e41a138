import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { outboxFixture, videos } from '../../test/setup/outbox-fixture.ts'
import { event, type NewEvent } from '../outbox/outbox.ts'
import type { Database } from '../postgres/database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { transaction } from '../postgres/transaction.ts'
import { startPostgres, type Postgres } from '../testing/embedded-postgres.ts'
import { switchCdcOn } from './outbox-cdc.ts'

let server: Postgres
let pool: pg.Pool
let db: Database
const actor = 'ada'

beforeAll(async () => {
  server = await startPostgres({ logical: true })
  pool = new pg.Pool({ connectionString: server.url })
  pool.on('error', () => {})
  db = fromPg(pool)
})
afterAll(async () => {
  await pool.end()
  await server.stop('immediate')
})

test('a date ahead is refused while a connector publishes; one that has passed, and none, are not', async () => {
  const fixture = await outboxFixture(db)
  const { outbox, publish } = fixture
  const { schema } = outbox.tables
  await switchCdcOn({ db, outbox, slot: 'waybill_dated', actor })
  const add = (notBefore: Date, ...before: readonly NewEvent[]): Promise<unknown> =>
    transaction(db, (tx) => outbox.addMany(tx, [...before, event(videos.VideoPublished, 'dated', { title: 'x' }, { notBefore })]))
  const ahead = new Date('9000-01-01')
  const plain = event(videos.VideoPublished, 'plain', { title: 'x' })
  const refused = { code: 'REFUSED', message: expect.stringContaining('waits for no date') }
  await expect(add(ahead)).rejects.toMatchObject(refused)
  await expect(add(ahead, plain)).rejects.toMatchObject(refused)
  const bySql = `select ${schema}.add_event('video.events', 'video', 'v', 'VideoPublished', '{}', not_before => now() + interval '1 day')`
  await expect(db.query(bySql)).rejects.toMatchObject({ code: 'WB004' })
  await add(new Date(0))
  await add(new Date(0), plain)
  await publish('v', 'one')
  expect(await fixture.states()).toEqual({
    'dated 1': 'PUBLISHED',
    'dated 2': 'PUBLISHED',
    'plain 1': 'PUBLISHED',
    'v 1': 'PUBLISHED',
  })
})

test('switching on gives up behind a transaction that adds events and does not end, and says what to do', async () => {
  const { outbox } = await outboxFixture(db)
  const slot = 'waybill_busy'
  // To make one would wait for the transaction as well, and for as long as it takes.
  await pool.query(`select pg_create_logical_replication_slot($1, 'pgoutput')`, [slot])
  await transaction(db, async (tx) => {
    await outbox.add(tx, videos.VideoPublished, 'v', { title: 'x' })
    await expect(switchCdcOn({ db, outbox, slot, actor })).rejects.toMatchObject({
      code: 'TIMEOUT',
      message: expect.stringContaining('Nothing was switched'),
    })
  })
})
