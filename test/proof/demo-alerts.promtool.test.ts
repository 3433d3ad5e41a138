/**
 * The demo, watched by Prometheus with the shipped rules: it alerts when the relay stands still and when a poison message dies.
 * Only the waits of the rules are shortened.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { repositoryRoot } from '../../scripts/run-command.ts'
import { startChild } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { startPrometheus } from '../../src/testing/servers/prometheus.ts'

const script = new URL('../../scripts/start.ts', import.meta.url)

test('the alerts fire on the demo when the relay is stopped and when a poison message dies', { timeout: 1_200_000 }, async () => {
  const shipped = await readFile(join(repositoryRoot, 'deploy', 'prometheus', 'waybill.rules.yml'), 'utf8')
  const rules = shipped.replaceAll(/^( +for:) .*$/gm, '$1 0s').replace('due_age_seconds) > 60', 'due_age_seconds) > 10')
  await using demo = startChild(script, { args: ['--rate', '20'] })
  const { url } = await demo.message<{ url: string }>((message) => typeof message?.url === 'string')
  const targets = [...(await demo.line('metrics')).matchAll(/http:\S+(?=\/metrics)/g)].map(([target]) => target)
  const relayPid = Number(/relay (\d+)/.exec(await demo.line('processes'))?.[1])
  expect(targets).toHaveLength(2)
  const prometheus = await startPrometheus({ rules, targets })
  const watched = ['WaybillDeadLetters', 'WaybillOutboxStale', 'WaybillRelayStopped']
  const firing = async (): Promise<string[]> =>
    (await prometheus.firing())
      .map((labels) => labels['alertname'] ?? '')
      .filter((name) => watched.includes(name))
      .toSorted()
  const patience = { timeoutMs: 180_000, intervalMs: 200 }
  try {
    await eventually(async () => expect(await prometheus.query('waybill_outbox_unowned_lanes')).toEqual([0]), patience)
    await eventually(async () => expect(await prometheus.query('waybill_consumer_applied_total > 0')).toHaveLength(1), patience)
    await eventually(async () => expect(await firing()).toEqual([]), patience)

    process.kill(relayPid, 'SIGSTOP')
    await eventually(async () => expect(await firing()).toEqual(['WaybillOutboxStale', 'WaybillRelayStopped']), patience)
    process.kill(relayPid, 'SIGCONT')
    await eventually(async () => expect(await firing()).toEqual([]), patience)

    const pressed = await fetch(`${url}/actions/inject-poison`, { method: 'POST', headers: { origin: url } })
    expect(pressed.status).toBe(202)
    await eventually(async () => expect(await firing()).toEqual(['WaybillDeadLetters']), patience)
  } finally {
    await prometheus.stop()
    await demo.kill('SIGINT')
  }
})
