import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import type { DrillRecord, DrillReport } from '../stage/drill.ts'
import { productionSign } from '../target/production-sign.ts'
import { reportHtml, timelinePicture } from './report-html.ts'
import { reportText } from './report-text.ts'
import { deadLettersIn } from '../stage/alerts.ts'

const record: DrillRecord = {
  name: 'some-drill',
  hazard: 'It <breaks> & "burns".',
  fault: 'Somebody breaks it.',
  verdict: 'fail',
  fired: true,
  evidence: 'it was seen',
  timeline: [
    { atMs: 100, kind: 'step', what: 'a step' },
    { atMs: 120, kind: 'fault', what: '<script>alert(1)</script>' },
    { atMs: 2_000, kind: 'recovery', what: 'at rest' },
  ],
  counts: { committed: 4, published: 5, duplicates: 1, applied: 2 },
  judged: ['no-loss'],
  violations: ['no-loss: account a v1 was committed and never published'],
  seconds: 2.5,
}
const report: DrillReport = {
  drills: [record],
  verdict: 'fail',
  passed: 0,
  failed: 1,
  skipped: 0,
  seed: 3,
  on: 'embedded',
  seconds: 4,
}

test('the page is one file that asks for nothing and runs nothing, whatever the texts contain', () => {
  const page = reportHtml(report)
  expect(page).toContain("default-src 'none'")
  expect(page).not.toContain('<script')
  expect(page).not.toMatch(/(?:src|href)="(?!#)/)
  expect(page).toContain('It &lt;breaks&gt; &amp; &quot;burns&quot;.')
  expect(page).toContain('was committed and never published')
})

test('the terminal shows a line for each drill with its evidence, what was violated beneath, and the sum', () => {
  expect(reportText(report).split('\n')).toEqual([
    'fail    some-drill                 2.5 s  it was seen',
    '        no-loss: account a v1 was committed and never published',
    '',
    'fail: 1 drills on embedded parts, 0 passed, 1 failed, 0 skipped, in 4 s (seed 3)',
  ])
})

test('what could not be closed at the end is told beneath the sum, on the page too', () => {
  const unclosed = { ...report, leftBehind: 'topic <t> is still there' }
  expect(reportText(unclosed).split('\n').at(-1)).toBe('Not everything could be closed at the end: topic <t> is still there')
  expect(reportHtml(unclosed)).toContain('topic &lt;t&gt; is still there')
})

test('the picture has a dot for every step, none upon another and none outside', () => {
  const crowded = Array.from({ length: 20 }, () => ({ atMs: 5, kind: 'step' as const, what: 'at once' }))
  const places = [...timelinePicture(crowded, 1).matchAll(/cx="(\d+)"/g)].map(([, x]) => Number(x))
  expect(places).toHaveLength(20)
  for (const [index, x] of places.entries()) {
    expect(x - (places[index - 1] ?? 0)).toBeGreaterThanOrEqual(19)
    expect(x).toBeLessThan(960)
  }
})

test('production is recognised as a word, by environment or deployment', () => {
  const sign = (...environments: string[]) => productionSign({ environments, deploymentIds: [] })
  for (const name of ['production', 'PROD', 'eu-prod-1', 'live']) expect(sign('test', name)).toContain(`"${name}"`)
  for (const name of ['staging', 'reproduction', 'product', 'olive', 'development']) expect(sign(name)).toBeUndefined()
  expect(productionSign({ environments: [], deploymentIds: ['shop-production'] })).toBe('its deployment is "shop-production"')
})

test('without Prometheus the alert is decided on the count that the shipped rule watches', async () => {
  const metric = 'waybill_consumer_dead_letters_total'
  const rules = await readFile(new URL('../../../deploy/prometheus/waybill.rules.yml', import.meta.url), 'utf8')
  expect(rules).toContain(`${metric}{reason!="discarded"}`)
  expect(deadLettersIn('')).toBe(0)
  expect(deadLettersIn(`# TYPE ${metric} counter\n${metric}{consumer="a",reason="discarded"} 4\n`)).toBe(0)
  expect(deadLettersIn(`${metric}{consumer="a",reason="failed"} 2\n${metric}{consumer="b",reason="unknown-type"} 1\n`)).toBe(3)
})
