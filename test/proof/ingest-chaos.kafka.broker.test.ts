/**
 * Facts from a client's retry to the row, over a real Kafka of their own, with every hop of the way killed: in full a hundred thousand of
 * them, and each hop again and again.
 */
import { expect, test } from 'vitest'
import { runCommand } from '../../scripts/run-command.ts'

const [facts, killsOfEach] = process.env['WAYBILL_PROOF'] === 'full' ? [100_000, 15] : [2_000, 1]

test(`${facts} facts over HTTP, each hop killed ${killsOfEach} times: rows are the accepted keys, none missing, none double`, async () => {
  const env = {
    INGEST_FACTS: String(facts),
    INGEST_KILLS: String(killsOfEach),
    INGEST_PATIENCE_MS: '600000',
    INGEST_BROKER: 'kafka',
  }
  const { code, output } = await runCommand(['node', 'scripts/example.ts', 'ingest', 'chaos'], { env })
  console.log(output)
  for (const hop of ['gateway', 'service', 'broker', 'consumer'])
    expect(output.split(`${hop} was killed`).length - 1).toBe(killsOfEach)
  expect(output).toContain(`The table agrees: ${facts} rows, none missing, none double.`)
  expect(code).toBe(0)
}, 2_400_000)
