/**
 * Facts from a client's retry to the row, over a real Kafka of their own, with every hop of the way killed: in full a hundred thousand of
 * them, and each hop again and again.
 */
import { test } from 'vitest'
import { expectNoneLost } from '../ingest/ingest-chaos.ts'

const [facts, kills] = process.env['WAYBILL_PROOF'] === 'full' ? [100_000, 15] : [2_000, 1]

test(`${facts} facts over HTTP and Kafka, each hop killed ${kills} times: rows are the accepted keys, none missing, none double`, async () => {
  await expectNoneLost({ broker: 'kafka', facts, kills })
}, 2_400_000)
