import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'

import { run } from '../../src/core/service/lifetime.ts'
import { randomInt, seededRandom } from '../../src/core/service/random.ts'
import type { BackfillReport } from '../../src/outbox/backfill/backfill.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { startChild } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import { outboxFixture } from '../setup/outbox-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'
import type { BackfillChildSettings } from './backfill-child.ts'
import { createBookTable, foldLog, ownerState, removeBook, snapshotCounts, writeBook } from './backfill-world.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const child = new URL('backfill-child.ts', import.meta.url)

/** Killed with a batch's events written but not committed, then with a batch committed but not reported; then it may finish. */
async function killTwiceAndFinish(settings: BackfillChildSettings): Promise<BackfillReport> {
  const args = [JSON.stringify(settings)]
  for (const name of ['added', 'committed']) {
    const killed = startChild(child, { args, failpoint: { name, action: 'kill', onHit: 4 } })
    await killed.failpoint(name)
    expect(await killed.exited).toMatchObject({ signal: 'SIGKILL' })
  }
  const last = startChild(child, { args })
  const { report } = await last.message<{ report: BackfillReport }>((message) => message.report !== undefined)
  await last.exited
  return report
}

test(
  "a backfill during concurrent writes, killed twice and resumed: what consumers fold equals the owner's table",
  { timeout: 180_000 },
  async () => {
    const { outbox, relay } = await outboxFixture(db)
    const { schema } = outbox.tables
    const table = 'public.books_live'
    const owner = { db, outbox, table }
    await createBookTable(db, table, 500)
    const broker = memory({ nasty: true, random: seededRandom(11) })
    const stop = new AbortController()
    const relaying = run([relay(broker, { leaseMs: 500, renewMs: 100 })], { signal: stop.signal })
    const calm = new AbortController()
    const write = async (seed: number): Promise<number> => {
      const random = seededRandom(seed)
      let writes = 0
      for (; !calm.signal.aborted; writes += 1) {
        const id = `b${String(randomInt(random, 1, 520)).padStart(4, '0')}`
        if (random.next() < 0.2) await removeBook(owner, id)
        else await writeBook(owner, { id, title: `new ${seed} ${writes}` })
      }
      return writes
    }
    const reading = killTwiceAndFinish({ url: database.url, schema, table }).finally(() => calm.abort())
    const [report, ...writes] = await Promise.all([reading, write(1), write(2)])

    // A broker that is out of reach time and again is asked less and less often, also by the last event that is left.
    const caughtUp = async (): Promise<void> => {
      await broker.quiet()
      expect(foldLog(broker)).toEqual(await ownerState(db, table))
    }
    await eventually(caughtUp, { timeoutMs: 120_000 })
    stop.abort()
    await relaying
    expect(Math.min(...writes)).toBeGreaterThan(0)
    const counts = Object.values(await snapshotCounts(db, outbox))
    expect(report.state).toBe('finished')
    expect(counts.every((count) => count === 1)).toBe(true)
    expect(counts.length).toBe(report.emitted)
    expect(report.rows).toBeGreaterThan(300)
  },
)

test('an export file, read by processes of which two are killed, is emitted line by line exactly once', async () => {
  const { outbox, relay } = await outboxFixture(db)
  const folder = await mkdtemp(join(tmpdir(), 'waybill-export-'))
  const file = join(folder, 'books.ndjson')
  const rows = Array.from({ length: 400 }, (_, i) => ({ id: `b${String(i).padStart(4, '0')}`, title: `exported ${i} é` }))
  await writeFile(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
  const report = await killTwiceAndFinish({ url: database.url, schema: outbox.tables.schema, file })
  expect(report).toMatchObject({ state: 'finished', rows: 400, emitted: 400, skipped: 0 })

  const broker = memory()
  expect(await relay(broker).once()).toBe(400)
  expect(foldLog(broker)).toEqual(Object.fromEntries(rows.map(({ id, title }) => [id, title])))
  await rm(folder, { recursive: true })
})
