/** `waybill outbox cdc` as an operator types it: there, back, and back without the slot. Each step says what comes next. */
import { expect, test } from 'vitest'
import { logicalDatabase } from '../../../test/setup/logical-database.ts'
import { outboxFixture, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { readInserts } from '../../../test/setup/pgoutput.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'
import { cdcPublication } from '../../ops/cdc/slot.ts'
import { memory } from '../../transport/memory/memory.ts'

const { url, pool, db } = await logicalDatabase()

interface Operator extends OutboxFixture {
  cdc(line: string, onErr?: (text: string) => void): Promise<Ended>
  /** The line as it is. */
  waybill(line: string, onErr?: (text: string) => void): Promise<Ended>
}

async function operator(): Promise<Operator> {
  const fixture = await outboxFixture(db)
  const { schema } = fixture.outbox.tables
  const waybill: Operator['waybill'] = (line, onErr) =>
    runLine(line, { folder: import.meta.dirname, env: { DATABASE_URL: url }, onErr })
  return { ...fixture, waybill, cdc: (line, onErr) => waybill(`outbox cdc ${line} --schema ${schema}`, onErr) }
}

test('hands over to a connector and back, and says at each step who publishes and what comes next', async () => {
  const { cdc, publish, relay, outbox } = await operator()
  const publication = cdcPublication(outbox)
  expect(await cdc('')).toEqual({ code: 0, out: 'Dispatch is on: relays publish.\n', err: '' })

  await publish('v', '1')
  const broker = memory()
  let draining: Promise<number> | undefined
  const on = await cdc('on --slot there', (text) => {
    if (text.includes('for a relay')) draining ??= relay(broker).once()
  })
  expect(await draining).toBe(1)
  expect(on).toMatchObject({
    code: 0,
    err: expect.stringContaining('1 event waits for a relay. Relays must run until none does.'),
  })
  expect(on.out).toContain(`Start the connector on slot "there", publication "${publication}", without a snapshot`)
  expect(JSON.parse((await cdc('on --slot there --json')).out)).toEqual({ slot: 'there', publication })
  const between = await cdc('')
  expect(between.out).toMatch(
    /^Dispatch is off: a connector publishes\.\nSLOT +PLUGIN +ACTIVE +BEHIND \(BYTES\)\nthere +pgoutput +no +\d/,
  )

  await publish('v', '2')
  expect(await relay(broker).once()).toBe(0)
  let reading: ReturnType<typeof readInserts> | undefined
  const off = await cdc('off --slot there', () => void (reading ??= readInserts(pool, 'there', publication)))
  expect((await reading)?.map((row) => row['version'])).toContain('2')
  expect(off.code).toBe(0)
  // Until it is stopped it publishes at once what relays would keep for later.
  expect(off.out).toContain('Stop it now, for it heeds neither dates nor pauses; then drop the slot "there", start the relays')
  expect((await cdc('')).out).toContain('Dispatch is on: relays publish.')
})

test('goes back without the slot by the command that it names, and says that readers will see some of it twice', async () => {
  const { cdc, waybill, publish, relay } = await operator()
  expect(await cdc('on --slot gone')).toMatchObject({ code: 0 })
  await publish('v', '1', '2')
  await pool.query(`select pg_drop_replication_slot('gone')`)
  const refused = await cdc('off --slot gone')
  expect(refused).toMatchObject({ code: 1, out: '', err: expect.stringContaining('--lost') })
  const [, named = ''] = /`waybill (.+?)`/.exec(refused.err) ?? []
  const lost = await waybill(named)
  expect(lost).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^2 events were put in line again.*readers remove those\. Start the relays/),
  })
  expect(await relay(memory()).once()).toBe(2)
})
