import { expect, test } from 'vitest'
import { allCells, playCells, someKafkaCells } from '../crash-matrix/matrix.ts'
import { sharedKafka } from '../crash-matrix/shared-kafka.ts'
import { testKafka } from '../setup/test-kafka.ts'

const isFull = process.env['WAYBILL_PROOF'] === 'full'
const cells = isFull ? allCells.filter(({ broker }) => broker === 'Kafka') : someKafkaCells(1)
const { brokers } = await testKafka()

test(
  'over Kafka, at every place and under every fault, nothing is lost, doubled or out of order',
  { timeout: 10_800_000 },
  async () => {
    const { results, ...report } = await playCells(cells, { seed: 1, kafka: sharedKafka(brokers) })
    console.log(JSON.stringify(report))
    const wrong = results.filter(({ fired, violations }) => !fired || violations.length > 0)
    expect(wrong.map(({ cell, explanation, violations }) => `${cell}\n${explanation ?? violations.join('\n')}`)).toEqual([])
    expect(report).toMatchObject({ cells: cells.length, fired: cells.length, violations: 0 })
  },
)
