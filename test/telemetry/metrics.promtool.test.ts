/**
 * What a live system shows is what promtool accepts, and it shows what happened.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { runCommand } from '../../scripts/run-command.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { testDatabase } from '../setup/test-database.ts'
import { startLiveServices } from './live-services.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
let folder: string

beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), 'waybill-metrics-'))))
afterAll(async () => rm(folder, { recursive: true, force: true }))

async function checkMetrics(text: string): Promise<{ readonly code: number; readonly output: string }> {
  const file = join(folder, 'metrics.txt')
  await writeFile(file, text)
  return await runCommand(['sh', '-c', 'promtool check metrics <"$0"', file])
}

test('promtool accepts the metrics of a live system, and they count what happened', async () => {
  const services = await startLiveServices(db)
  services.startRelay()
  for (let n = 1; n <= 20; n += 1) await services.publish(`v${n % 5}`, `title ${n}`)
  await services.publish('bad', 'poison')
  await eventually(async () => (await services.fixture.count('dead_letter')) === 1)
  await eventually(async () => (await services.fixture.count('inbox')) === 20)
  await eventually(() => services.fixture.heard('relay.backlog').some(({ due }) => due === 0))
  await eventually(() => services.fixture.heard('command.cleaned').length > 0)

  const lines = [
    'waybill_consumer_applied_total{consumer="catalog"} 20',
    'waybill_command_outcomes_total{command="PublishVideo",outcome="executed"} 21',
    'waybill_relay_published_total 21',
    'waybill_relay_publish_delay_seconds_count 21',
    expect.stringMatching(/^waybill_outbox_unowned_lanes\{outbox="\w+"\} 0$/),
    'waybill_lanes_held 64',
    'waybill_consumer_dead_letters_total{consumer="catalog",reason="failed"} 1',
    'waybill_service_running{service="relay"} 1',
  ]
  // The backlog is counted every few seconds, perhaps last before the relay had its lanes.
  const text = await eventually(async () => {
    const scraped = await (await fetch(`${services.url}/metrics`)).text()
    expect(scraped.split('\n')).toEqual(expect.arrayContaining(lines))
    return scraped
  })
  expect(text).toMatch(/waybill_consumer_handler_duration_seconds_count\{consumer="catalog",event_type="VideoPublished"\} 2\d/)
  expect(await checkMetrics(text)).toMatchObject({ code: 0, output: '' })
  await services.stop()
})

test('promtool would refuse what breaks the format', async () => {
  const { code, output } = await checkMetrics('# TYPE waybill_x counter\nwaybill_x 1\n')
  expect(code).not.toBe(0)
  expect(output).toContain('waybill_x')
})
