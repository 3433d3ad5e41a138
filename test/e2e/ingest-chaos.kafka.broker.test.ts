/**
 * The way of a fact over a real Kafka of its own, which is killed like every other hop.
 */
import { expect, test } from 'vitest'
import { runCommand } from '../../scripts/run-command.ts'
import { missingForKafka } from '../../src/testing/kafka-programs.ts'

test.skipIf(missingForKafka() !== undefined)(
  'over Kafka, with gateway, service, broker and consumer killed, the table has every accepted key, none missing, none double',
  async () => {
    const env = { INGEST_FACTS: '2000', INGEST_KILLS: '1', INGEST_BROKER: 'kafka' }
    const { code, output } = await runCommand(['node', 'scripts/example.ts', 'ingest', 'chaos'], { env })
    expect(output).toContain('over Kafka.')
    for (const hop of ['gateway', 'service', 'broker', 'consumer']) expect(output).toContain(`${hop} was killed`)
    expect(output).toContain('The table agrees: 2000 rows, none missing, none double.')
    expect(code).toBe(0)
  },
  300_000,
)
