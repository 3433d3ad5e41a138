import { expect, test } from 'vitest'
import { errorMeanings, errorMessage, grpcCodes, isWaybillError, meaningOf, WaybillError, type ErrorCode } from './errors.ts'

test('an error takes retryable from the table unless told otherwise', () => {
  expect(new WaybillError('UNAVAILABLE', 'x').retryable).toBe(true)
  expect(new WaybillError('INVALID_INPUT', 'x').retryable).toBe(false)
  expect(new WaybillError('UNAVAILABLE', 'x', { retryable: false }).retryable).toBe(false)
})

test('an error keeps its cause and its facts', () => {
  const cause = new Error('why')
  const error = new WaybillError('INTERNAL', 'what', { cause, details: { id: 7 } })
  expect(error).toMatchObject({ name: 'WaybillError', code: 'INTERNAL', message: 'what', cause, details: { id: 7 } })
  expect(new WaybillError('INTERNAL', 'x').details).toEqual({})
})

test('an error of another copy of this package is recognised by its name, and by its code', () => {
  const foreign = Object.assign(new Error('x'), { name: 'WaybillError', code: 'NOT_YET' })
  expect(isWaybillError(foreign)).toBe(true)
  expect(isWaybillError(foreign, 'NOT_YET')).toBe(true)
  expect(isWaybillError(foreign, 'TIMEOUT')).toBe(false)
  for (const other of [new Error('x'), { name: 'WaybillError' }, null, undefined, 'WaybillError'])
    expect(isWaybillError(other)).toBe(false)
})

test.each(Object.keys(errorMeanings) as ErrorCode[])(
  '%s has a gRPC status that exists and an HTTP status of an error',
  (code) => {
    const { grpc, http } = meaningOf(code)
    expect(grpcCodes[grpc]).toBeTypeOf('number')
    expect(http >= 400 && http < 600).toBe(true)
  },
)

test('a client is told to try again only with statuses that say so', () => {
  const repeated = Object.values(errorMeanings).filter((meaning) => meaning.retryable)
  expect(new Set(repeated.map((meaning) => meaning.grpc))).toEqual(
    new Set(['ABORTED', 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'RESOURCE_EXHAUSTED']),
  )
  // Whether a lost COMMIT took effect is not known: simply repeating it could do the work twice.
  expect(meaningOf('COMMIT_UNKNOWN').retryable).toBe(false)
})

test('anything that was thrown has a text', () => {
  expect(errorMessage(new Error('a'))).toBe('a')
  expect(errorMessage('b')).toBe('b')
  expect(errorMessage(undefined)).toBe('undefined')
  expect(errorMessage(Symbol('c'))).toBe('Symbol(c)')
  expect(errorMessage(new AggregateError([new Error('refused on ::1'), new Error('refused on 127.0.0.1')]))).toBe(
    'refused on ::1; refused on 127.0.0.1',
  )
  for (const strange of [new Error(''), new AggregateError([]), '', Object.create(null), { toString: () => Symbol('no text') }]) {
    expect(errorMessage(strange)).toMatch(/\S/)
  }
})
