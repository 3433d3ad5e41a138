/** What brokers and sources say when they refuse, with secrets in it: none is stored, and none is signalled. */
import { expect, test } from 'vitest'
import { library } from '../../test/outbox/backfill-library.ts'
import { outboxFixture } from '../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { memory } from '../transport/memory/memory.ts'
import type { PublishOutcome } from '../transport/port/transport.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const quoted = 'refused by amqps://ada:hunter2@mq/x Authorization: Bearer eyJsecret'
const left = 'refused by amqps://***@mq/x Authorization: ***'

test.each(['rejected', 'unavailable'] as const)('of a broker whose answer is %s', async (status) => {
  const fixture = await outboxFixture(db)
  const signalled: object[] = []
  fixture.signals.onAny((event, name) => void signalled.push({ name, ...event }))
  await fixture.publish('v1', 'one')
  const broker = memory()
  const publish = async (messages: readonly unknown[]): Promise<PublishOutcome[]> =>
    messages.map(() => ({ status, error: new Error(quoted) }))
  // A broker that is out of reach ends the pass with an error.
  await Promise.allSettled([fixture.relay({ ...broker, publish }, { maxAttempts: 1 }).once()])
  const told = JSON.stringify([await fixture.dispatch(), signalled], (_, value: unknown) =>
    typeof value === 'bigint' ? `${value}` : value,
  )
  expect(told).toContain(left)
  expect(told).not.toMatch(/hunter2|eyJsecret/)
})

test('of a backfill whose source fails', async () => {
  const { outbox, backfill } = await library(db, 1)
  const toEvent = (): never => {
    throw new Error(quoted)
  }
  await expect(backfill({ toEvent }).run()).rejects.toThrow('refused by')
  const { rows } = await db.query(`select state, error from ${outbox.tables.schema}.operation`)
  expect(rows).toEqual([{ state: 'failed', error: expect.stringContaining(left) }])
})
