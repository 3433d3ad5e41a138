import { EventEmitter } from 'node:events'
import { expect, test } from 'vitest'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { stopSignal } from './stop-signal.ts'

function setUp() {
  const clock = createFakeClock()
  const codes: number[] = []
  const program = Object.assign(new EventEmitter(), { exit: (code: number) => void codes.push(code) })
  return { clock, codes, program, signal: stopSignal(program, clock) }
}

test('the same signal again ends the process only if it comes more than a second later', async () => {
  const { clock, codes, program, signal } = setUp()
  program.emit('SIGINT')
  expect(signal.aborted).toBe(true)
  await clock.advance(1_000)
  program.emit('SIGINT')
  expect(codes).toEqual([])
  await clock.advance(1)
  program.emit('SIGINT')
  expect(codes).toEqual([130])
})

test('a program that was stopped by one signal is not cut off by the other', async () => {
  const { clock, codes, program } = setUp()
  program.emit('SIGINT')
  await clock.advance(5_000)
  program.emit('SIGTERM')
  expect(codes).toEqual([])
})
