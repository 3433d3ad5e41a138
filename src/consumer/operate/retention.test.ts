import { expect, test } from 'vitest'
import type { Queryable } from '../../postgres/query/database.ts'
import { createInboxRetention } from './retention.ts'

const hourMs = 3_600_000
const idleMs = 5_000

/** A database in which every table has so many blocks, with so few old rows in each stretch; it writes down which stretches of the inbox were asked for. */
function littleOld(
  blocks: number,
  removed: number,
): { readonly db: Queryable; readonly stretches: (readonly [from: number, to: number])[] } {
  const stretches: (readonly [number, number])[] = []
  const query: Queryable['query'] = async (text, values = []) => {
    if (text.includes('retention_clock')) return { rows: [{ now_ms: '0', leaps: '[]' }], rowCount: 1 }
    const edges = values.flatMap((value) => (typeof value === 'string' ? (/^\((\d+),0\)$/.exec(value)?.[1] ?? []) : []))
    if (text.includes('noted as')) stretches.push([Number(edges[0]), Number(edges[1])])
    return { rows: [{ removed: text.includes('dead_letter') ? 0 : removed, blocks }], rowCount: 1 }
  }
  return { db: { query }, stretches }
}

test.each([
  [1_000, 0],
  [20_000_000, 0],
  [80_000_000, 400],
])(
  'an inbox of %i blocks is gone over in six hours, in short statements, with %i old rows in each of them',
  async (blocks, removed) => {
    const { db, stretches } = littleOld(blocks, removed)
    const { pass } = createInboxRetention({ db, idleMs })
    const passes = 3
    for (let i = 0; i < passes; i += 1) expect(await pass(new AbortController().signal)).toBe('idle')
    const walked = stretches.reduce((sum, [from, to]) => sum + to - from, 0)
    expect((walked / passes) * ((6 * hourMs) / idleMs)).toBeGreaterThanOrEqual(blocks)
    expect(walked).toBeLessThanOrEqual(passes * Math.max(512, (blocks * idleMs) / (6 * hourMs) + 512))
    expect(stretches.every(([from, to]) => to - from === 512)).toBe(true)
    const [, ...behind] = stretches
    expect(behind.every(([from], nth) => nth === 0 || from === 0 || from === behind[nth - 1]?.[1])).toBe(true)
  },
)
