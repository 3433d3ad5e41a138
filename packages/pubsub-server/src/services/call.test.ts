import type { ServerUnaryCall } from '@grpc/grpc-js'
import { expect, test } from 'vitest'
import { Broker } from '../broker/broker.ts'
import { systemClock } from '../model/clock.ts'
import { Faults } from '../model/faults.ts'
import { memoryJournal } from '../model/journal.ts'
import type { Journal } from '../model/journal.ts'
import { seededRandom } from '../model/random.ts'
import { unary } from './call.ts'
import type { CallContext } from './call.ts'

function contextWith(flushed: Journal['flushed']): CallContext {
  const faults = new Faults(seededRandom(1))
  const broker = new Broker({ clock: systemClock, faults, journal: { ...memoryJournal, flushed } })
  return { broker, toStatus: (error) => ({ details: String(error) }) }
}

const call = { request: {} } as ServerUnaryCall<unknown, unknown>

test('a caller is answered only after what it changed is written', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const answers: unknown[] = []
  unary(
    contextWith(() => promise),
    () => 'done',
  )(call, (error, value) => answers.push(error ?? value))
  await new Promise((turn) => setImmediate(turn))
  expect(answers).toEqual([])
  resolve()
  await new Promise((turn) => setImmediate(turn))
  expect(answers).toEqual(['done'])
})

test('a caller is told of the failure when its change could not be written', async () => {
  const answers: unknown[] = []
  const context = contextWith(() => Promise.reject(new Error('disk full')))
  unary(context, () => 'done')(call, (error, value) => answers.push(error ?? value))
  await new Promise((turn) => setImmediate(turn))
  expect(answers).toEqual([{ details: 'Error: disk full' }])
})

test('without a log the answer comes at once', () => {
  const answers: unknown[] = []
  unary(
    contextWith(() => undefined),
    () => 'done',
  )(call, (error, value) => answers.push(error ?? value))
  expect(answers).toEqual(['done'])
})
