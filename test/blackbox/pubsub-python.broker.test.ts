/**
 * Google's Python client, an implementation that shares no line with ours, against the local Pub/Sub server.
 *
 * It runs where `python3` has the package google-cloud-pubsub (or where WAYBILL_PYTHON names an interpreter that has it).
 */
import { execFile, execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { startPubsubServer } from 'waybill-pubsub-server'

const python = process.env['WAYBILL_PYTHON'] ?? 'python3'
const checks = [
  'dead_lettering',
  'errors',
  'exactly_once_ack',
  'exactly_once_invalid_ack',
  'ordered_streaming_pull',
  'publish_and_pull',
  'seek_to_time',
  'snapshots',
]

function hasClient(): boolean {
  try {
    execFileSync(python, ['-c', 'import google.cloud.pubsub_v1'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

test.skipIf(!hasClient())(
  'publishing, ordered streaming, exactly-once acks, dead-lettering, seek and snapshots work with the Python client',
  async () => {
    const server = await startPubsubServer()
    try {
      const script = fileURLToPath(new URL('pubsub_client.py', import.meta.url))
      const env = { ...process.env, PUBSUB_EMULATOR_HOST: server.emulatorHost }
      const { stdout } = await promisify(execFile)(python, [script], { env, timeout: 150_000 })
      expect(stdout.trim().split('\n')).toEqual(checks.map((name) => `ok ${name}`))
    } finally {
      await server.stop()
    }
  },
  180_000,
)
