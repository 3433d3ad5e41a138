import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'

import { startProcess } from './drilled-process.ts'

test('a process is told the address of its database, and its arguments, which everybody can read, do not hold it', async () => {
  const url = 'postgres://ann:canary-password@127.0.0.1:1/nowhere'
  const { child, stop } = await startProcess({
    settings: {
      role: 'relay',
      url,
      schema: 'waybill',
      topic: 'drill.events',
      transport: { kind: 'kafka', brokers: [] },
      relayLeaseMs: 1_000,
      metrics: false,
    },
    script: new URL('../../test/fixtures/told-child.ts', import.meta.url),
  })
  expect(await child.message<{ url?: string }>((message) => message.url !== undefined)).toEqual({ args: [], url })
  const line = execFileSync('ps', ['-o', 'args=', '-p', String(child.pid)], { encoding: 'utf8' })
  expect(line).toContain('told-child.ts')
  expect(line).not.toContain('canary-password')
  await stop()
})
