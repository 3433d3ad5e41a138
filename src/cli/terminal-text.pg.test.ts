/** Texts from outside (ids, types, errors, attributes, reasons, arguments) in everything that the command line prints. */
import { expect, test } from 'vitest'
import { consumerFixture, deposited, accounts } from '../../test/setup/consumer-fixture.ts'
import { runLine } from '../../test/setup/run-line.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { createRelay } from '../outbox/relay/relay.ts'
import { transaction } from '../postgres/transaction/transaction.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { memory } from '../transport/memory/memory.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** What a terminal acts upon (C0, C1, changes of direction), and a line of its own. */
const hostile = 'x\u001b[2J\u0007\u009b31m\u202ed\u2066e\u200f\u061c\u2028\u007f\r\nFORGED'
const acted = /(?![\n\t])[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u

const fixture = await consumerFixture(db)
const failing = fixture.consumer({ maxAttempts: 1 }).on(accounts.Deposited, () => {
  throw new Error(`broken ${hostile}`)
})
const stop = fixture.start(failing)
const letter = deposited(hostile, 1, 7)
await fixture.publish({ ...letter, attributes: { ...letter.attributes, 'x-note': hostile } })
await eventually(async () => (await fixture.count('dead_letter')) === 1)
await stop()
await transaction(db, (tx) => fixture.outbox.add(tx, accounts.Deposited, hostile, { amount: 1 }))
const broker = memory()
await createRelay({
  db,
  outbox: fixture.outbox,
  maxAttempts: 1,
  transport: {
    ...broker,
    publish: async (messages) => messages.map(() => ({ status: 'rejected', error: new Error(hostile) })),
  },
}).once()
await db.query(`update ${fixture.schema}.dead_letter set error = $1`, [hostile])
const [dead] = await fixture.query<{ id: string; event_id: string }>('select id::text, event_id::text from $schema.dead_letter')
const [event] = await fixture.query<{ event_id: string }>('select id::text as event_id from $schema.outbox')

test.each([
  'outbox list',
  'outbox status',
  'outbox skip --all',
  'outbox drop --all',
  `outbox pause --stream ${hostile} --reason ${hostile}`,
  'outbox status',
  'status',
  'status --check',
  'doctor',
  'dlq list',
  'dlq list --each',
  `dlq show --id ${dead?.id}`,
  'dlq redrive --all --dry-run',
  'dlq discard --all',
  `dlq list --consumer ${hostile}`,
  `dlq list --state ${hostile}`,
  `trace ${dead?.event_id}`,
  `trace ${event?.event_id}`,
  `trace ${hostile}`,
  `status --${hostile}`,
  `${hostile}`,
])('none of it reaches the terminal by: %j', async (line) => {
  for (const form of ['', ' --json', ' --verbose']) {
    const told = await runLine(`${line}${form} --schema ${fixture.schema}`, {
      folder: import.meta.dirname,
      env: { DATABASE_URL: database.url },
    })
    expect(told.out).not.toMatch(acted)
    expect(told.err).not.toMatch(acted)
    // Who typed the line knows what it says; JSON is one line.
    const lines = line.includes(hostile) ? [] : told.out.split('\n')
    expect(lines.filter((each) => each.startsWith('FORGED'))).toEqual([])
    expect(told.out + told.err).not.toBe('')
  }
})

test('the texts were there to be shown', async () => {
  const env = { DATABASE_URL: database.url }
  for (const line of ['outbox list', 'dlq list --each', `dlq show --id ${dead?.id}`, 'dlq discard --all', 'outbox skip --all'])
    expect((await runLine(`${line} --schema ${fixture.schema}`, { folder: import.meta.dirname, env })).out).toContain('FORGED')
})
