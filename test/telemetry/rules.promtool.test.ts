/**
 * The shipped alert rules: correct to promtool, each fires where it should and is quiet just short of it, each has its
 * section in the runbook, and all of them, like the dashboard, ask only for metrics that there are.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { repositoryRoot, runCommand } from '../../scripts/run-command.ts'
import {
  metricDefinitions,
  prometheusName,
  type MetricDefinition,
  type MetricName,
} from '../../src/telemetry/metric-definitions.ts'
import { ruleCases, type RuleCase } from './rule-cases.ts'

const rulesFile = join(repositoryRoot, 'deploy', 'prometheus', 'waybill.rules.yml')
const rules = await readFile(rulesFile, 'utf8')
const alerts = [...rules.matchAll(/- alert: (\w+)/g)].map((match) => match[1] ?? '')
let folder: string

beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), 'waybill-rules-'))))
afterAll(async () => rm(folder, { recursive: true, force: true }))

test('promtool accepts the rules', async () => {
  const { code, output } = await runCommand(['promtool', 'check', 'rules', rulesFile])
  expect(output).toContain(`${alerts.length} rules found`)
  expect(code).toBe(0)
})

test('every alert has its case', () => {
  expect(Object.keys(ruleCases)).toEqual(alerts)
})

test('every alert fires where it should, and is quiet just short of it', async () => {
  const file = join(folder, 'cases.json')
  const tests = Object.entries(ruleCases).flatMap(([alert, each]) => [
    ruleTest(`${alert} fires`, { alert, series: each.fires, at: each.at, firing: true }),
    ruleTest(`${alert} is quiet`, { alert, series: each.quiet, at: each.at, firing: false }),
  ])
  await writeFile(file, JSON.stringify({ rule_files: [rulesFile], evaluation_interval: '1m', tests }))
  const { code, output } = await runCommand(['promtool', 'test', 'rules', file])
  expect(output).toContain('SUCCESS')
  expect(code).toBe(0)
})

test('an outbox or a consumer that ends is missed by its name, although others go on, and forgotten after a day', async () => {
  const file = join(folder, 'ended.json')
  const seen = [
    ['waybill_outbox_oldest_due_age_seconds{job="shop",instance="a",outbox="waybill"}', '0x320'],
    ['waybill_outbox_oldest_due_age_seconds{job="shop",instance="a2",outbox="audit"}', '0x1'],
    ['waybill_outbox_oldest_due_age_seconds{job="catalog",instance="b",outbox="waybill"}', '0x320'],
    ['waybill_consumer_in_flight{job="catalog",instance="b",consumer="films"}', '0x1'],
    ['waybill_consumer_in_flight{job="catalog",instance="b",consumer="shelves"}', '0x320'],
  ]
  const firing =
    'sum by (alertname, job, outbox, consumer) (ALERTS{alertname=~"Waybill(OutboxUnreported|ConsumerStopped)",alertstate="firing"})'
  const missed = [
    { labels: '{alertname="WaybillConsumerStopped",job="catalog",consumer="films"}', value: 1 },
    { labels: '{alertname="WaybillOutboxUnreported",job="shop",outbox="audit"}', value: 1 },
  ]
  const ended = {
    name: 'ended',
    interval: '5m',
    input_series: seen.map(([series, values]) => ({ series, values })),
    promql_expr_test: [
      { expr: firing, eval_time: '5m', exp_samples: [] },
      { expr: firing, eval_time: '20m', exp_samples: missed },
      { expr: firing, eval_time: '26h', exp_samples: [] },
    ],
  }
  await writeFile(file, JSON.stringify({ rule_files: [rulesFile], evaluation_interval: '5m', tests: [ended] }))
  const { code, output } = await runCommand(['promtool', 'test', 'rules', file])
  expect(output).toContain('SUCCESS')
  expect(code).toBe(0)
})

test('an outbox that an older version counted without its name is not missed when a newer one names it', async () => {
  const file = join(folder, 'named.json')
  const metric = 'waybill_outbox_oldest_due_age_seconds'
  const series = {
    [`${metric}{job="shop",instance="a"}`]: '0x30',
    [`${metric}{job="shop",instance="b",outbox="waybill"}`]: '_x30 0x60',
  }
  const named = ruleTest('named', { alert: 'WaybillOutboxUnreported', series, at: '60m', firing: false })
  await writeFile(file, JSON.stringify({ rule_files: [rulesFile], evaluation_interval: '1m', tests: [named] }))
  const { code, output } = await runCommand(['promtool', 'test', 'rules', file])
  expect(output).toContain('SUCCESS')
  expect(code).toBe(0)
})

test('a stopped relay is told of although its breaker stood open when nothing was due, and not while something is', async () => {
  const file = join(folder, 'breaker.json')
  const outbox = 'job="shop",instance="a",outbox="a"'
  const series = (dueSeconds: number) => ({
    [`waybill_outbox_unowned_lanes{${outbox}}`]: '64x120',
    [`waybill_relay_breaker_open{${outbox}}`]: '1x120',
    [`waybill_outbox_oldest_due_age_seconds{${outbox}}`]: `${dueSeconds}x120`,
  })
  const alert = 'WaybillRelayStopped'
  const tests = [
    ruleTest('nothing is due', { alert, series: series(0), at: undefined, firing: true }),
    ruleTest('something is due', { alert, series: series(1), at: undefined, firing: false }),
  ]
  await writeFile(file, JSON.stringify({ rule_files: [rulesFile], evaluation_interval: '1m', tests }))
  const { code, output } = await runCommand(['promtool', 'test', 'rules', file])
  expect(output).toContain('SUCCESS')
  expect(code).toBe(0)
})

test('clean-up is missed where commands run and where it ran by itself, not where everything was taken away', async () => {
  const file = join(folder, 'cleanup.json')
  const lag = 'waybill_command_cleanup_lag_seconds'
  const executed = (job: string) => `waybill_command_outcomes_total{job="${job}",instance="a",command="Pay",outcome="executed"}`
  const seen = [
    // Commands without any, and with one that hangs: the metric disappears.
    [executed('forgotten'), '1x320'],
    [executed('hangs'), '1x320'],
    [`${lag}{job="hangs",instance="a"}`, '0 0 stale'],
    // A process of its own, whose commands run where nobody scrapes.
    [`${lag}{job="worker",instance="a"}`, '0 0 stale'],
    // An API that was scaled to zero, and one whose clean-up waits for minutes after each pass.
    [executed('away'), '1 1 stale'],
    [`${lag}{job="away",instance="a"}`, '0 0 stale'],
    [executed('slow'), '1x320'],
    [`${lag}{job="slow",instance="a"}`, '0 stale '.repeat(160)],
  ]
  const firing = 'sum by (job) (ALERTS{alertname="WaybillCleanupStopped",alertstate="firing"})'
  const missed = (...jobs: readonly string[]) => jobs.map((job) => ({ labels: `{job="${job}"}`, value: 1 }))
  const stopped = {
    name: 'stopped',
    interval: '5m',
    input_series: seen.map(([series, values]) => ({ series, values })),
    promql_expr_test: [
      { expr: firing, eval_time: '5m', exp_samples: [] },
      { expr: firing, eval_time: '10m', exp_samples: missed('forgotten') },
      { expr: firing, eval_time: '30m', exp_samples: missed('forgotten', 'hangs', 'worker') },
      { expr: firing, eval_time: '26h', exp_samples: missed('forgotten', 'hangs') },
    ],
  }
  await writeFile(file, JSON.stringify({ rule_files: [rulesFile], evaluation_interval: '5m', tests: [stopped] }))
  const { code, output } = await runCommand(['promtool', 'test', 'rules', file])
  expect(output).toContain('SUCCESS')
  expect(code).toBe(0)
})

test.each([
  { alert: 'WaybillConsumerLagging', metric: 'waybill_consumer_lag_seconds' },
  { alert: 'WaybillStoredLagging', metric: 'waybill_consumer_stored_lag_seconds' },
])(
  '$alert fires although batches take minutes and tell of it in between only, and not for one that has caught up',
  async (rule) => {
    const file = join(folder, `${rule.alert}.json`)
    const series = (values: string) => ({ [`${rule.metric}{job="shop",instance="a",consumer="catalog"}`]: values })
    const { alert } = rule
    // A batch ends every five minutes; each is shown for a minute, and then hidden.
    const slow = series('400 400 stale _ _ '.repeat(8))
    const caughtUp = series('400x4 stale _x40')
    const tests = [
      ruleTest('slow', { alert, series: slow, at: '20m', firing: true }),
      ...['5m', '8m', '9m', '10m'].map((at) => ruleTest(`caught up, ${at}`, { alert, series: caughtUp, at, firing: false })),
    ]
    await writeFile(file, JSON.stringify({ rule_files: [rulesFile], evaluation_interval: '1m', tests }))
    const { code, output } = await runCommand(['promtool', 'test', 'rules', file])
    expect(output).toContain('SUCCESS')
    expect(code).toBe(0)
  },
)

test('a change of a threshold would be noticed', async () => {
  const loose = join(folder, 'loose.rules.yml')
  const file = join(folder, 'loose.json')
  await writeFile(
    loose,
    rules.replace('waybill_outbox_oldest_due_age_seconds) > 60', 'waybill_outbox_oldest_due_age_seconds) > 600'),
  )
  const series = ruleCases['WaybillOutboxStale']?.fires ?? {}
  const tests = [ruleTest('stale', { alert: 'WaybillOutboxStale', series, at: undefined, firing: true })]
  await writeFile(file, JSON.stringify({ rule_files: [loose], evaluation_interval: '1m', tests }))
  const { code, output } = await runCommand(['promtool', 'test', 'rules', file])
  expect(output).toContain('FAILED')
  expect(code).not.toBe(0)
})

test('every alert has one section in the runbook, under the address that it shows', async () => {
  const runbook = await readFile(join(repositoryRoot, 'docs', 'guides', 'runbook.md'), 'utf8')
  const sections = [...runbook.matchAll(/^### (Waybill\w+)$/gm)].map((match) => match[1])
  expect(sections).toEqual(alerts)
  const addresses = [...rules.matchAll(/runbook: docs\/guides\/runbook\.md#(\w+)/g)].map((match) => match[1])
  expect(addresses).toEqual(alerts.map((alert) => alert.toLowerCase()))
})

test('rules and dashboard ask only for metrics that there are', async () => {
  const dashboard = await readFile(join(repositoryRoot, 'deploy', 'grafana', 'waybill.json'), 'utf8')
  const known = new Set(
    (Object.entries(metricDefinitions) as [MetricName, MetricDefinition][]).flatMap(([metric, { kind }]) => {
      const name = prometheusName(metric)
      return kind === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name]
    }),
  )
  const asked = [...`${rules}${dashboard}`.matchAll(/\bwaybill_[a-z_]+/g)].map(([name]) => name)
  expect(asked.length).toBeGreaterThan(50)
  expect(asked.filter((name) => !known.has(name))).toEqual([])
})

test('Prometheus understands every question of the dashboard', async () => {
  const dashboard = await readFile(join(repositoryRoot, 'deploy', 'grafana', 'waybill.json'), 'utf8')
  const asked = [...dashboard.matchAll(/"expr": ("(?:[^"\\\\]|\\\\.)*")/g)].map((match) => JSON.parse(match[1] ?? '') as string)
  const filled = asked.map((expr) => expr.replaceAll('$job', '.*').replaceAll('$__rate_interval', '5m'))
  const file = join(folder, 'dashboard.json')
  const records = filled.map((expr, index) => ({ record: `panel_${index}`, expr }))
  await writeFile(file, JSON.stringify({ groups: [{ name: 'dashboard', rules: records }] }))
  const { code, output } = await runCommand(['promtool', 'check', 'rules', file])
  expect(output).toContain(`${asked.length} rules found`)
  expect(code).toBe(0)
})

interface RuleTest {
  readonly alert: string
  readonly series: RuleCase['fires']
  readonly at: string | undefined
  readonly firing: boolean
}

function ruleTest(name: string, { alert, series, at = '20m', firing }: RuleTest): object {
  const expr = `count(ALERTS{alertname="${alert}",alertstate="firing"})`
  return {
    name,
    interval: '1m',
    input_series: Object.entries(series).map(([each, values]) => ({ series: each, values })),
    promql_expr_test: [{ expr, eval_time: at, exp_samples: firing ? [{ labels: '{}', value: 1 }] : [] }],
  }
}
