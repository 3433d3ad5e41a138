/**
 * Prometheus itself, with the shipped rules, on a live system: it alerts when the relay is stopped and when a poison message
 * dies, and is quiet before and after. Only the waits of the rules watched here are shortened; thresholds have tests of their own.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { repositoryRoot } from '../../scripts/run-command.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { testDatabase } from '../setup/test-database.ts'
import { startLiveServices } from './live-services.ts'
import { startPrometheus } from '../../src/testing/servers/prometheus.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const watched = ['WaybillDeadLetters', 'WaybillOutboxStale', 'WaybillRelayStopped']

/** The others wait as they do for operators: a machine that stalls for a moment makes none of them fire. */
function withoutWaits(rules: string): string {
  const isWatched = (rule: string): boolean => watched.some((name) => rule.startsWith(`- alert: ${name}\n`))
  return rules
    .split(/(?=- alert: )/)
    .map((rule) => (isWatched(rule) ? rule.replace(/^( +for:) .*$/m, '$1 0s') : rule))
    .join('')
}

test('alerts fire when the relay is stopped and when a poison message dies, and no sooner or longer', async () => {
  const shipped = await readFile(join(repositoryRoot, 'deploy', 'prometheus', 'waybill.rules.yml'), 'utf8')
  const rules = withoutWaits(shipped).replace('due_age_seconds) > 60', 'due_age_seconds) > 1')
  expect(rules).not.toContain('due_age_seconds) > 60')
  const services = await startLiveServices(db)
  services.startRelay()
  const prometheus = await startPrometheus({ rules, targets: [services.url] })
  const names = async (): Promise<string[]> => (await prometheus.firing()).map((labels) => labels['alertname'] ?? '').toSorted()
  const eventuallyFiring = (expected: readonly string[]): Promise<unknown> =>
    eventually(async () => expect(await names()).toEqual(expected), { intervalMs: 100 })
  try {
    await services.publish('v1', 'one')
    await eventually(async () => expect(await prometheus.query('waybill_outbox_unowned_lanes')).toEqual([0]))
    await eventually(async () => expect(await prometheus.query('waybill_relay_published_total')).toEqual([1]))
    await eventuallyFiring([])

    await services.stopRelay()
    await services.publish('v1', 'two')
    await eventuallyFiring(['WaybillOutboxStale', 'WaybillRelayStopped'])
    services.startRelay()
    await eventuallyFiring([])

    await services.publish('bad', 'poison')
    await eventuallyFiring(['WaybillDeadLetters'])
    const dead = (await prometheus.firing()).find((labels) => labels['alertname'] === 'WaybillDeadLetters')
    expect(dead).toMatchObject({ consumer: 'catalog', severity: 'critical', job: 'waybill' })
  } finally {
    await prometheus.stop()
    await services.stop()
  }
}, 180_000)
