import pg from 'pg'
import postgres from 'postgres'
import { afterEach, describe, expect, test } from 'vitest'
import { z } from 'zod'

import { command } from '../../src/command/model/command.ts'
import { createCommands } from '../../src/command/commands.ts'
import { createMarkerCleanup } from '../../src/command/marker-cleanup.ts'
import { createConsumer, type Consumer } from '../../src/consumer/consumer.ts'
import { createInboxRetention } from '../../src/consumer/operate/retention.ts'
import { redriveDeadLetters } from '../../src/consumer/operate/redrive.ts'
import { delta, state } from '../../src/core/event/event.ts'
import { createSignals } from '../../src/core/signals.ts'
import { stream } from '../../src/core/event/stream.ts'
import { doctorOutbox } from '../../src/ops/doctor/outbox.ts'
import { listOutbox, outboxStatus } from '../../src/ops/status/outbox-status.ts'
import { createOutbox, event } from '../../src/outbox/outbox.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import { createOutboxRetention } from '../../src/outbox/operate/retention.ts'
import { assertSchema } from '../../src/postgres/schema/deployment.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { fromPostgresJs } from '../../src/postgres/adapters/from-postgres-js.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'
import { testDatabase } from '../setup/test-database.ts'
import { sessions } from './sessions.ts'

const database = await testDatabase()
const accounts = stream('account', { topic: 'account.events', events: { Deposited: delta(z.object({ amount: z.number() })) } })
const shops = stream('shop', { topic: 'shop.events', events: { Closed: state(z.object({ reason: z.string() })) } })
/** More of one aggregate than a relay takes at a time, so that it has to settle. */
const deposits = 150
const never = new AbortController().signal

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
  await database.pool.query(`alter database ${database.name} reset all`)
})

async function openWith(settings: Readonly<Record<string, string>>) {
  for (const [name, value] of Object.entries(settings))
    await database.pool.query(`alter database ${database.name} set ${name} = ${value}`)
  const pool = new pg.Pool({ connectionString: database.directUrl })
  closing.push(() => pool.end())
  return { pool, db: fromPg(pool) }
}

let schemas = 0

async function world(settings: Readonly<Record<string, string>>) {
  const { pool, db } = await openWith(settings)
  const schema = `session_${(schemas += 1)}`
  await migrate(db, { schema, service: 'bank' })
  await database.pool.query(`
    create table ${schema}.shop (id text primary key, closed text, version bigint not null, deleted_at timestamptz);
    create table ${schema}.effect (id text, version bigint, primary key (id, version));
    alter table ${schema}.outbox add column note text`)
  const [outbox, signals] = [createOutbox({ schema }), createSignals()]
  const failures: unknown[] = []
  signals.on('service.failed', ({ error }) => void failures.push(error))
  const transport = postgresTransport({ db, schema, signals })
  closing.push(() => transport.close())
  const count = async (table: string): Promise<number> =>
    (await database.pool.query<{ n: number }>(`select count(*)::int as n from ${schema}.${table}`)).rows[0]!.n
  return { pool, db, schema, outbox, signals, failures, transport, count }
}

type World = Awaited<ReturnType<typeof world>>

/** Starts a consumer that refuses account "poison" until `heal` is called. */
function consume({ db, schema, transport, signals }: World, mode: 'direct' | 'stored') {
  let isPoisoned = true
  const options = {
    db,
    schema,
    transport,
    signals,
    name: mode,
    mode,
    streams: [accounts, shops],
    maxAttempts: 1,
    pollMs: 5,
  } as const
  const consumer: Consumer = createConsumer({ ...options, backoff: { firstMs: 1, maxMs: 2 } })
    .project(shops, { table: `${schema}.shop`, key: 'id', set: ({ data }) => ({ closed: data.reason }) })
    .on(accounts.Deposited, async ({ aggregateId, version }, { tx }) => {
      if (isPoisoned && aggregateId === 'poison') throw new Error('poison')
      await tx.query(`insert into ${schema}.effect values ($1, $2)`, [aggregateId, String(version)])
    })
  const stop = new AbortController()
  const running = consumer.run({ stopping: stop.signal, aborting: never })
  closing.push(async () => {
    stop.abort()
    await running
  })
  return { heal: () => void (isPoisoned = false) }
}

describe.each(Object.entries(sessions))('in sessions with %s', (_name, settings) => {
  test.each(['direct', 'stored'] as const)(
    'events get from a command to their effects once, in order, and dead letters and retention work (%s)',
    async (mode) => {
      const it = await world(settings)
      const { db, schema, outbox, signals, transport, failures, count } = it
      const consumed = consume(it, mode)
      const deposit = command('deposit', {
        input: z.object({ id: z.string() }),
        aggregate: ({ id }) => ({ type: 'account', id }),
        store: 'response',
        plan: (input) => input,
        execute: async (_tx, { id }, { emit }) => {
          emit(accounts.Deposited, id, { amount: 1 })
          return { id }
        },
      })
      const commands = createCommands({ db, schema, outbox, signals })
      const request = { principal: 'ada', requestId: 'r-1', input: { id: 'big' } }
      expect((await commands.run(deposit, request)).status).toBe('executed')
      expect((await commands.run(deposit, request)).status).toBe('replayed')
      const many = Array.from({ length: deposits }, () => event(accounts.Deposited, 'big', { amount: 1 }))
      await transaction(db, (tx) => outbox.addMany(tx, [...many, event(accounts.Deposited, 'poison', { amount: 1 })]))
      await transaction(db, (tx) =>
        outbox.add(tx, shops.Closed, 'last', { reason: `it's \\ "over"` }, { columns: { note: `it's \\ noted` } }),
      )
      const relay = createRelay({ db, outbox, transport, signals, streams: [accounts, shops] })
      expect(await relay.once()).toBe(deposits + 3)
      await eventually(async () => (await count('dead_letter')) === 1 && (await count('effect')) === deposits + 1)
      await eventually(async () => (await count('shop')) === 1)
      const closed = await database.pool.query(
        `select a.closed, o.note from ${schema}.shop a join ${schema}.outbox o on o.aggregate_id = a.id`,
      )
      expect(closed.rows).toEqual([{ closed: `it's \\ "over"`, note: `it's \\ noted` }])

      consumed.heal()
      await redriveDeadLetters({ db, schema, filter: { all: true }, actor: 'ada' })
      await eventually(async () => (await count('effect')) === deposits + 2)

      const retain = (eventsMs: number): Promise<void> =>
        createOutboxRetention({ db, outbox, signals, eventsMs, receiptsMs: eventsMs, sourcesMs: eventsMs }).once(never)
      await retain(3_600_000)
      expect(await count('outbox')).toBe(deposits + 3)
      const listed = (await listOutbox(db, outbox, { aggregateType: 'shop', aggregateId: 'last' }))[0]?.occurredAt ?? ''
      expect(Math.abs(Date.parse(listed) - Date.now())).toBeLessThan(600_000)
      await createInboxRetention({ db, schema, signals, onShortMemory: 'warn' }).pass(never)
      await createMarkerCleanup({ db, schema, signals }).pass(never)
      await transport.sweep()
      expect([await count('inbox'), await count('command_marker')]).toEqual([deposits + 3, 1])
      await retain(0)
      expect(await count('outbox')).toBe(0)
      await outboxStatus(db, outbox)
      await doctorOutbox(db, outbox)
      expect(failures).toEqual([])
    },
  )
})

describe('a service refuses to start', () => {
  test('where its driver would read other bytes than are stored', async () => {
    const { schema } = await world({ bytea_output: 'escape' })
    const client = postgres(database.directUrl, { max: 1, fetch_types: false })
    closing.push(() => client.end())
    await expect(assertSchema(fromPostgresJs(client), { schema })).rejects.toMatchObject({
      code: 'REFUSED',
      message: expect.stringContaining(`alter role … set bytea_output = 'hex'`),
    })
  })

  test('where NULL in an array would be read as a word', async () => {
    const { db, schema } = await world({ array_nulls: 'off' })
    await expect(assertSchema(db, { schema })).rejects.toMatchObject({
      code: 'REFUSED',
      message: expect.stringContaining(`alter role … set array_nulls = 'on'`),
    })
  })
})
