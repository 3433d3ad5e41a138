import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

import { accounts } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { postgresTransport } from '../../transport/postgres/postgres-transport.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-repair-cli-'))
const source = (path: string): string => JSON.stringify(new URL(`../../../${path}`, import.meta.url).href)
const count = async (text: string): Promise<number> => (await db.query(text)).rows.length

/** Four deposits, the second of which the broker loses. */
beforeAll(async () => {
  await migrate(db, { schema: 'waybill', service: 'test' })
  await db.query('create table deposit (version bigint, at bigint generated always as identity)')
  await writeFile(
    join(folder, 'waybill.config.ts'),
    `import { createConsumer } from ${source('src/consumer/consumer.ts')}
     import { postgresTransport } from ${source('src/transport/postgres/postgres-transport.ts')}
     import { accounts } from ${source('test/setup/consumer-fixture.ts')}
     export default {
       service: 'test',
       transport: ({ db, schema }) => postgresTransport({ db, schema }),
       consumers: (context) => [
         createConsumer({ ...context, name: 'books', streams: [accounts], pollMs: 5 }).on(accounts.Deposited, async (event, { tx }) => {
           await tx.query('insert into deposit (version) values ($1)', [String(event.version)])
         }),
       ],
     }`,
  )
  const outbox = createOutbox()
  for (let amount = 1; amount <= 4; amount += 1)
    await transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'x', { amount }))
  const transport = postgresTransport({ db })
  await createRelay({ db, outbox, transport }).once()
  await transport.close()
  await db.query(`delete from waybill.transport_message where attributes->>'version' = '2'`)
})
afterAll(() => rm(folder, { recursive: true }))

const waybill = (line: string, signal?: AbortSignal): Promise<Ended> =>
  runLine(line, { folder, env: { DATABASE_URL: database.url }, signal })

async function consuming(until: () => Promise<boolean>): Promise<void> {
  const stop = new AbortController()
  const running = waybill('consume', stop.signal)
  await eventually(until)
  stop.abort()
  expect((await running).code).toBe(0)
}

test('a gap is shown and repaired from the outbox, and a replay changes nothing', async () => {
  expect(await waybill('repair-gap books --list')).toMatchObject({ code: 1, err: expect.stringContaining('has never run here') })
  await consuming(async () => (await count('select from waybill.inbox_message where state = 4')) === 2)
  expect(await waybill('repair-gap books --list')).toMatchObject({ code: 0, out: 'books has no gaps.\n' })

  const listed = await waybill('repair-gap books --list --older-than 0s')
  expect(listed.out).toMatch(/account +x +1 +3 +2/)
  const repaired = await waybill('repair-gap books --older-than 0s --json')
  expect(repaired.code).toBe(0)
  expect(JSON.parse(repaired.out)).toMatchObject({
    gaps: [{ aggregateId: 'x', position: '1', next: '3', brought: 1, missing: 0 }],
  })
  await consuming(async () => (await count('select from deposit')) === 4)

  expect(await waybill('replay books')).toMatchObject({ code: 2, err: expect.stringContaining('From when?') })
  expect(await waybill('replay books --from snapshot:a')).toMatchObject({ code: 2, err: expect.stringContaining('From when?') })
  expect(await waybill('replay books --from 7')).toMatchObject({ code: 2, err: expect.stringContaining('such as 2026-05-01') })
  expect(await waybill('replay other --from earliest')).toMatchObject({ code: 1, err: expect.stringContaining('it has books') })
  const again = await waybill('replay books --from earliest')
  expect(again).toMatchObject({ code: 0, out: 'books gets bank.events again from earliest.\n' })
  expect(await count('select from waybill.transport_delivery')).toBe(3)
  await consuming(async () => (await count('select from waybill.transport_delivery')) === 0)
  expect((await db.query('select version::int as v from deposit order by at')).rows).toEqual([1, 2, 3, 4].map((v) => ({ v })))

  await db.query(`update waybill.consumer set forgotten_before = clock_timestamp() where name = 'books'`)
  expect(await waybill('replay books --from 2025-01-01T00:00:00Z')).toMatchObject({
    code: 3,
    err: expect.stringContaining('beyond the memory of the inbox'),
  })
  const beyond = await waybill('replay books --from 2025-01-01T02:00:00+02:00 --beyond-memory')
  expect(beyond).toMatchObject({ code: 0, out: 'books gets bank.events again from 2025-01-01T00:00:00.000Z.\n' })

  // What waits is older than the moment, and is kept unless somebody insists.
  const { now } = (await db.query(`select to_json(clock_timestamp()) #>> '{}' as now`)).rows[0] as { now: string }
  expect((await waybill(`replay books --from ${now}`)).code).toBe(0)
  expect(await count('select from waybill.transport_delivery')).toBe(3)
  expect(await waybill('replay books --from 2999-01-01T00:00:00Z --skip-older')).toMatchObject({
    code: 3,
    err: expect.stringContaining('begins in the future'),
  })
  expect(await count('select from waybill.transport_delivery')).toBe(3)
  const explained = await waybill(`replay books --from ${now} --skip-older`)
  expect(explained).toMatchObject({ code: 3, err: expect.stringContaining('To replay, run the same with --yes.') })
  expect(explained.out).toMatch(
    /^would skip what of bank.events is older than \S+Z and books has not applied: it never comes.\n$/,
  )
  expect(await count('select from waybill.transport_delivery')).toBe(3)
  expect(await count(`select from waybill.audit_log where details->>'skipOlder' = 'true'`)).toBe(0)
  expect((await waybill(`replay books --from ${now} --skip-older --yes`)).code).toBe(0)
  expect(await count('select from waybill.transport_delivery')).toBe(0)
})

test('what the owner has not kept is told', async () => {
  await db.query(
    `insert into waybill.consumer_position (consumer, generation, aggregate_type, aggregate_id, version, waiting) values ('books', 1, 'account', 'gone', 1, 1)`,
  )
  await db.query(
    `insert into waybill.inbox_message (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id, attributes, body, published_at)
     values (1, 1, 4, 'books', 1, gen_random_uuid(), 'account', 'gone', 4, 'bank.events', 'm', '{}', '', clock_timestamp())`,
  )
  const told = await waybill('repair-gap books --older-than 0s')
  expect(told.code).toBe(4)
  expect(told.out).toContain('2 versions are not in the outbox any more.')
})
