/** The same way over Pub/Sub. */
import { test } from 'vitest'
import { expectNoneLost } from '../ingest/ingest-chaos.ts'

const [facts, kills] = process.env['WAYBILL_PROOF'] === 'full' ? [10_000, 3] : [2_000, 1]

test('with gateway, service, broker and consumer killed, the table has every accepted key, none missing, none double', async () => {
  await expectNoneLost({ broker: 'pubsub', facts, kills })
}, 2_400_000)
