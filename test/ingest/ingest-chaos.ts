import { expect } from 'vitest'
import { runCommand } from '../../scripts/run-command.ts'

export interface IngestChaos {
  readonly broker: 'kafka' | 'pubsub'
  readonly facts: number
  /** How often each hop is killed. */
  readonly kills: number
}

/** Sends facts over HTTP, as clients that repeat, kills every hop of their way, and compares the table with what was accepted. */
export async function expectNoneLost({ broker, facts, kills }: IngestChaos): Promise<void> {
  const env = {
    INGEST_FACTS: String(facts),
    INGEST_KILLS: String(kills),
    INGEST_PATIENCE_MS: '600000',
    INGEST_BROKER: broker,
  }
  const { code, output } = await runCommand(['node', 'scripts/example.ts', 'ingest', 'chaos'], { env })
  console.log(output)
  for (const hop of ['gateway', 'service', 'broker', 'consumer']) expect(output.split(`${hop} was killed`).length - 1).toBe(kills)
  expect(output).toContain(`The table agrees: ${facts} rows, none missing, none double.`)
  expect(code).toBe(0)
}
