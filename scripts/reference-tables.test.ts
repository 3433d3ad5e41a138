import { expect, test } from 'vitest'
import { defaultTable, errorTable, fillPage, signalTable } from './reference-tables.ts'

const errors = (entries: string): string => `export const errorMeanings = {\n${entries}\n} as const`
const signals = (entries: string): string => `export interface Signals {\n${entries}\n}\n`

test('an error code is listed with its comment and its meanings', () => {
  const source = errors("  /** It took too long. */\n  TIMEOUT: { grpc: 'DEADLINE_EXCEEDED', http: 504, retryable: true },")
  expect(errorTable(source)).toBe(
    [
      '| code | what it means | gRPC | HTTP | repeat the same call? |',
      '| --- | --- | --- | --- | --- |',
      '| `TIMEOUT` | It took too long. | DEADLINE_EXCEEDED | 504 | yes |',
    ].join('\n'),
  )
})

test('an error code that nobody described, or that cannot be read, is not left out in silence', () => {
  expect(() => errorTable(errors("  TIMEOUT: { grpc: 'ABORTED', http: 504, retryable: true },"))).toThrow(
    /TIMEOUT has no comment/,
  )
  expect(() => errorTable(errors('  /** x */\n  TIMEOUT: meaning(504),'))).toThrow(/Of 1 error codes only 0 could be read/)
})

test('signals of one paragraph share a comment; fields and unions are kept', () => {
  const source = signals(
    [
      '  /** Lanes changed',
      '   * hands. */',
      "  'lanes.taken': { readonly lanes: readonly number[] }",
      "  'lanes.lost': {",
      "    readonly state: 'open' | 'closed'",
      '    readonly error?: unknown',
      '  }',
      '',
      '  /** Another. */',
      "  'other': { readonly a: string; readonly b: number }",
    ].join('\n'),
  )
  expect(signalTable(source).split('\n').slice(2)).toEqual([
    '| `lanes.taken` | Lanes changed hands. | `lanes: readonly number[]` |',
    "| `lanes.lost` | Lanes changed hands. | `state: 'open' \\| 'closed'`, `error?: unknown` |",
    '| `other` | Another. | `a: string`, `b: number` |',
  ])
})

test('a signal that nobody described, or that cannot be read, is not left out in silence', () => {
  const first = "  /** One. */\n  'one': { readonly a: string }\n\n"
  expect(() => signalTable(signals(`${first}  'two': { readonly a: string }`))).toThrow(/two has no comment/)
  expect(() => signalTable(signals(`${first}  /** Two. */\n  'two': Other`))).toThrow(/Of 2 signals only 1 could be read/)
})

test('defaults are flat, and durations and back-offs are for people', () => {
  const table = defaultTable({
    schema: 'waybill',
    relay: { leaseMs: 1_500, idleMs: 50, keepMs: 259_200_000, maxBytes: 1_000_000, on: true },
    retry: { firstMs: 100, maxMs: 300_000 },
    cas: { backoff: { firstMs: 10, maxMs: 1_000, factor: 3, jitter: 'full' } },
  })
  expect(table.split('\n').slice(2)).toEqual([
    "| `schema` | `'waybill'` |",
    '| `relay.leaseMs` | 1.5 s |',
    '| `relay.idleMs` | 50 ms |',
    '| `relay.keepMs` | 3 days |',
    '| `relay.maxBytes` | 1,000,000 |',
    '| `relay.on` | `true` |',
    '| `retry` | 100 ms × 2 to 5 min, equal jitter |',
    '| `cas.backoff` | 10 ms × 3 to 1 s, full jitter |',
  ])
})

test('a default that cannot be set is marked, and one that does not exist cannot be', () => {
  const values = { relay: { leaseMs: 5_000, batchTimeoutMs: 30_000 } }
  expect(defaultTable(values, ['relay.batchTimeoutMs']).split('\n').slice(2)).toEqual([
    '| `relay.leaseMs` | 5 s |',
    '| `relay.batchTimeoutMs` (fixed) | 30 s |',
  ])
  expect(() => defaultTable(values, ['relay.gone'])).toThrow(/no relay\.gone/)
})

test('a page keeps what is outside its markers, and filling it twice changes nothing', () => {
  const page = '# Title\n\n<!-- made by scripts/docs.ts: do not edit -->\nold\n<!-- end -->\n\nAfter.\n'
  const filled = fillPage(page, '| new |')
  expect(filled).toBe('# Title\n\n<!-- made by scripts/docs.ts: do not edit -->\n\n| new |\n\n<!-- end -->\n\nAfter.\n')
  expect(fillPage(filled, '| new |')).toBe(filled)
  expect(fillPage(filled, '| newer |')).not.toBe(filled)
})

test('a page without markers is refused', () => {
  expect(() => fillPage('# Title\n', '')).toThrow(/The page needs the lines/)
})
