import { expect, test } from 'vitest'
import { outboxFixture } from '../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import type { Signals } from '../core/signals.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { eventually } from '../testing/eventually.ts'
import { memory } from '../transport/memory.ts'
import { createBacklogReport } from './backlog-report.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('what waits is reported although no relay has ever run', async () => {
  const fixture = await outboxFixture(db)
  const heard: Signals['relay.backlog'][] = []
  fixture.signals.on('relay.backlog', (event) => void heard.push(event))
  const stop = new AbortController()
  const report = createBacklogReport({ db, outbox: fixture.outbox, signals: fixture.signals, everyMs: 100 })
  const running = report.run({ stopping: stop.signal, aborting: new AbortController().signal })

  await fixture.publish('v1', 'one', 'two')
  await eventually(() => expect(heard.at(-1)).toMatchObject({ due: 2, unownedLanes: 64 }))
  expect(heard.at(-1)?.oldestDueAgeMs).toBeGreaterThan(0)
  await fixture.relay(memory()).once()
  await eventually(() => expect(heard.at(-1)).toMatchObject({ due: 0, oldestAgeMs: 0, oldestDueAgeMs: 0 }))
  stop.abort()
  await running
})

test('a parked event, and what it holds, are waiting but not due', async () => {
  const fixture = await outboxFixture(db)
  const heard: Signals['relay.backlog'][] = []
  fixture.signals.on('relay.backlog', (event) => void heard.push(event))
  await fixture.publish('v1', 'one', 'two')
  const refusing = memory({ maxBytes: 1_000_000 })
  const publish: typeof refusing.publish = async (messages) =>
    messages.map(() => ({ status: 'rejected', error: new Error('no') }) as const)
  await fixture.relay({ ...refusing, publish }, { maxAttempts: 1 }).once()
  const report = createBacklogReport({ db, outbox: fixture.outbox, signals: fixture.signals, everyMs: 100 })
  const stop = new AbortController()
  const running = report.run({ stopping: stop.signal, aborting: new AbortController().signal })
  await eventually(() => expect(heard.at(-1)).toMatchObject({ due: 0, held: 1, parked: 1, oldestDueAgeMs: 0 }))
  expect(heard.at(-1)?.oldestAgeMs).toBeGreaterThan(0)
  stop.abort()
  await running
})
