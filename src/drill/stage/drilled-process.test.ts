import { execFileSync } from 'node:child_process'
import { afterEach, expect, test, vi } from 'vitest'

import { startProcess, type StartOptions } from './drilled-process.ts'

const url = 'postgres://ann:canary-password@127.0.0.1:1/nowhere'
const told: StartOptions = {
  settings: {
    role: 'relay',
    url,
    schema: 'waybill',
    topic: 'drill.events',
    transport: { kind: 'kafka', brokers: [] },
    relayLeaseMs: 1_000,
    metrics: false,
  },
  patienceMs: 45_000,
  script: new URL('../../../test/fixtures/told-child.ts', import.meta.url),
}
afterEach(() => void vi.useRealTimers())

test('a process is told the address of its database, and its arguments, which everybody can read, do not hold it', async () => {
  const { child, stop } = await startProcess(told)
  expect(await child.message<{ url?: string }>((message) => message.url !== undefined)).toEqual({ args: [], url })
  const line = execFileSync('ps', ['-o', 'args=', '-p', String(child.pid)], { encoding: 'utf8' })
  expect(line).toContain('told-child.ts')
  expect(line).not.toContain('canary-password')
  await stop()
})

test('a process that lives and never reaches its failpoint is waited for no longer than patience allows', async () => {
  const relay = await startProcess(told)
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const waits = [relay.reached('after publish'), relay.killedAt('after publish')]
  const failed = waits.map((wait) =>
    expect(wait).rejects.toThrow('The relay did not reach the failpoint "after publish" within 45 s.'),
  )
  vi.advanceTimersByTime(45_000)
  await Promise.all(failed)
  vi.useRealTimers()
  await relay.stop()
})

test('a process that is not ready in time is an error, and is ended', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const starting = startProcess(told)
  expect(children()).toContain('told-child.ts')
  vi.advanceTimersByTime(45_000)
  await expect(starting).rejects.toThrow('The relay was not ready within 45 s.')
  expect(children()).not.toContain('told-child.ts')
})

test('an end that the drill did not want is a failure, and one that it wanted is none', async () => {
  const [killed, stopped, ended] = await Promise.all([startProcess(told), startProcess(told), startProcess(told)])
  await killed.kill()
  await killed.stop()
  await stopped.stop()
  await ended.child.kill('SIGTERM')
  await expect(ended.stop()).rejects.toThrow('The relay ended by itself (SIGTERM)')
  expect([killed, stopped, ended].map(({ failure }) => failure?.slice(0, 25))).toEqual([
    undefined,
    undefined,
    'The relay ended by itself',
  ])
})

/** What the processes that this one started run. */
function children(): string {
  const all = execFileSync('ps', ['-A', '-o', 'ppid=,args='], { encoding: 'utf8' }).split('\n')
  return all.filter((line) => line.trim().startsWith(`${process.pid} `)).join('\n')
}
