import { expect, test } from 'vitest'
import { allCells, playCells, someCells } from '../crash-matrix/matrix.ts'

const isFull = process.env['WAYBILL_PROOF'] === 'full'
// Those on Kafka have a suite of their own.
const cells = isFull ? allCells.filter(({ broker }) => broker === 'Pub/Sub') : someCells(1)

test('at every place and under every fault, nothing is lost, doubled or out of order', { timeout: 10_800_000 }, async () => {
  const { results, ...report } = await playCells(cells, { seed: 1 })
  console.log(JSON.stringify(report))
  const wrong = results.filter(({ fired, violations }) => !fired || violations.length > 0)
  expect(wrong.map(({ cell, explanation, violations }) => `${cell}\n${explanation ?? violations.join('\n')}`)).toEqual([])
  expect(report).toMatchObject({ cells: cells.length, fired: cells.length, violations: 0 })
})
