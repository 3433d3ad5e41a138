import { execFileSync } from 'node:child_process'

import { expect, test } from 'vitest'

import { startChild } from './child.ts'
import type { ChildOptions } from './child.ts'
import { eventually } from '../kit/eventually.ts'
import type { FailpointAction } from '../faults/failpoint.ts'

const start = (options?: ChildOptions) => startChild(new URL('../../../test/fixtures/failing-child.ts', import.meta.url), options)
const at = (name: string, action: FailpointAction, onHit = 1): ChildOptions => ({ failpoint: { name, action, onHit } })
const stateOf = (pid: number): string => execFileSync('ps', ['-o', 'state=', '-p', String(pid)], { encoding: 'utf8' }).trim()

test('a child answers messages, and what it said before anybody asked is not lost', async () => {
  await using child = start()
  child.send({ n: 1 })
  expect(await child.message()).toEqual({ echo: { n: 1 } })
  expect(await child.line('done')).toBe('done')
  expect(await child.line(/^ran b/)).toBe('ran begin')
})

test('waiting for what can no longer come fails with the error output of the child', async () => {
  await using child = start({ args: ['--exit'] })
  expect(await child.exited).toEqual({ code: 3, signal: null })
  await expect(child.failpoint('before-commit')).rejects.toThrow(/code 3[\s\S]*leaving as told/)
  await expect(child.line('never said')).rejects.toThrow('before it said that')
})

test('a failpoint kills between two steps, proves it, and lets no finally run', async () => {
  await using child = start(at('before-commit', 'kill'))
  await child.failpoint('before-commit')
  expect(await child.exited).toEqual({ code: null, signal: 'SIGKILL' })
  expect(await child.line('ran insert')).toBe('ran insert')
  await expect(child.line('ran commit')).rejects.toThrow('SIGKILL')
  await expect(child.line('finally')).rejects.toThrow('SIGKILL')
})

test('a failpoint after a step fires when the step is done', async () => {
  await using child = start(at('after-commit', 'kill'))
  await child.failpoint('after-commit')
  await child.exited
  expect(await child.line('ran commit')).toBe('ran commit')
  await expect(child.line('done')).rejects.toThrow('SIGKILL')
})

test('a failpoint can wait for its n-th hit and throw', async () => {
  await using child = start(at('any-statement', 'throw', 2))
  await child.failpoint('any-statement')
  expect(await child.line('failed')).toContain('"any-statement" was told to throw')
  expect(await child.line('ran begin')).toBe('ran begin')
  await child.kill()
  await expect(child.line('ran insert')).rejects.toThrow('SIGKILL')
})

test('a hanging failpoint blocks its call alone: the child still answers', async () => {
  await using child = start(at('before-commit', 'hang'))
  await child.failpoint('before-commit')
  child.send('still there?')
  expect(await child.message((said: { echo?: unknown }) => said.echo === 'still there?')).toBeTruthy()
  await child.kill()
  await expect(child.line('ran commit')).rejects.toThrow('SIGKILL')
})

test('a freezing failpoint stops the whole child until it is thawed', async () => {
  await using child = start(at('before-commit', 'freeze'))
  await child.failpoint('before-commit')
  await eventually(() => stateOf(child.pid).startsWith('T'))
  child.thaw()
  expect(await child.line('done')).toBe('done')
})

test('a frozen child answers when it is thawed, and a frozen one can be killed', async () => {
  await using child = start()
  await child.line('done')
  child.freeze()
  await eventually(() => stateOf(child.pid).startsWith('T'))
  child.send('ping')
  child.thaw()
  expect(await child.message()).toEqual({ echo: 'ping' })
  child.freeze()
  expect(await child.kill()).toEqual({ code: null, signal: 'SIGKILL' })
})
