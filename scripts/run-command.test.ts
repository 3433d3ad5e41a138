import { expect, test } from 'vitest'
import { startChild } from '../src/testing/process/child.ts'
import { exitCodeOf, runCommand, type CommandResult } from './run-command.ts'

test('a command that dies by a signal never counts as success, and the signal is told', async () => {
  const result = await runCommand(['sh', '-c', 'kill -KILL $$'])
  expect(result).toMatchObject({ code: 1, signal: 'SIGKILL', told: undefined })
})

test.each([
  ['SIGHUP', 129],
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)('%s ends the command that stands in for us, and is told; its exit code is %i', async (signal, code) => {
  await using child = startChild(new URL('../test/fixtures/commanding-child.ts', import.meta.url))
  await child.message<{ isRunning?: boolean }>(({ isRunning }) => isRunning === true)
  const ended = child.kill(signal)
  expect(await child.message<CommandResult>((message) => 'code' in message)).toMatchObject({ code: 1, signal, told: signal })
  expect(await ended).toEqual({ code: 0, signal: null })
  expect(exitCodeOf(signal)).toBe(code)
})
