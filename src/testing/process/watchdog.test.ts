import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { startChild } from './child.ts'
import { eventually } from '../kit/eventually.ts'

const script = new URL('../../../test/fixtures/watching-child.ts', import.meta.url)
const sleeping: ChildProcess[] = []
afterEach(() => {
  for (const each of sleeping.splice(0)) each.kill()
})

/** Lets a parent die whose watchdog watches a live process, and waits until the watchdog has done its work. */
async function bereave(...words: readonly string[]): Promise<ChildProcess> {
  const live = spawn('sleep', ['600'], { stdio: 'ignore' })
  sleeping.push(live)
  const folders = [await mkdtemp(join(tmpdir(), 'waybill-watched-')), await mkdtemp(join(tmpdir(), 'waybill-watched-'))]
  const parent = startChild(script, { args: [String(live.pid), ...folders, ...words] })
  await parent.message()
  await parent.kill()
  // The last that it does.
  await eventually(() => !folders.some((folder) => existsSync(folder)))
  return live
}

test('a watchdog ends what its parent leaves behind', async () => {
  const live = await bereave()
  if (live.signalCode === null) await once(live, 'exit')
  expect(live.signalCode).toBe('SIGKILL')
})

test('a watchdog leaves a process alone that has the number of one that has ended', async () => {
  const live = await bereave('ended')
  expect(live.kill(0)).toBe(true)
  expect([live.exitCode, live.signalCode]).toEqual([null, null])
})
