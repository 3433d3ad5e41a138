import { expect, test } from 'vitest'

import {
  isConnectionLoss,
  isLockTimeout,
  isRetryableState,
  isSystemFailure,
  isUnavailable,
  isUniqueViolation,
  sqlState,
} from './sql-state.ts'

const server = (code: string): Error => Object.assign(new Error(`failed with ${code}`), { code })
const fatal = (code: string): Error => Object.assign(server(code), { severity: 'FATAL' })
const wrap = (fields: object): Error => Object.assign(new Error('wrapped'), fields)

test.each([
  ['node-postgres or postgres.js', server('23505')],
  ['Drizzle', wrap({ cause: server('23505') })],
  ['TypeORM', wrap({ code: undefined, driverError: server('23505') })],
  [
    'Prisma, in a raw statement',
    wrap({ code: 'P2010', meta: { driverAdapterError: wrap({ cause: { originalCode: '23505' } }) } }),
  ],
  [
    'Prisma, at COMMIT',
    wrap({ name: 'DriverAdapterError', cause: { originalCode: '23505', kind: 'UniqueConstraintViolation' } }),
  ],
  ['Prisma before version 7', wrap({ code: 'P2010', meta: { code: '23505' } })],
  ['somebody’s own wrapping of all that', wrap({ cause: wrap({ cause: wrap({ originalError: server('23505') }) }) })],
])('the code is found in an error of %s', (_name, error) => {
  expect(sqlState(error)).toBe('23505')
  expect(isUniqueViolation(error)).toBe(true)
  expect(isConnectionLoss(error)).toBe(false)
})

test('codes of Node and of Prisma are not taken for codes of the server', () => {
  for (const code of ['EPIPE', 'EBUSY', 'P2002', 'P1001', 'P2034', 'P5000', 'CONNECTION_CLOSED', '', 42, null]) {
    expect(sqlState(wrap({ code }))).toBeUndefined()
  }
  expect(sqlState(server('P0001'))).toBe('P0001')
  for (const nothing of [undefined, null, 'text', 7, new Error('plain')]) expect(sqlState(nothing)).toBeUndefined()
})

test('an error that is its own cause ends the search', () => {
  const error = new Error('round')
  error.cause = error
  expect([sqlState(error), isConnectionLoss(error)]).toEqual([undefined, false])
})

test.each([
  server('57P01'),
  server('57P02'),
  server('25P03'),
  server('08006'),
  server('08P01'),
  server('ECONNRESET'),
  server('CONNECTION_CLOSED'),
  server('P1017'),
  server('EAI_AGAIN'),
  server('EADDRNOTAVAIL'),
  server('ECONNABORTED'),
  server('EMFILE'),
  fatal('XX000'),
  fatal('58000'),
  fatal('57P04'),
  Object.assign(server('57P04'), { severity_local: 'ВАЖНО', severity: 'FATAL' }),
  Object.assign(server('XX000'), { severity: 'PANIC' }),
  wrap({ meta: { driverAdapterError: wrap({ cause: { originalCode: 'XX000', severity: 'FATAL' } }) } }),
  new Error('Connection terminated unexpectedly'),
  new Error('Client has encountered a connection error and is not queryable'),
  new Error('Query read timeout'),
  new Error('Query runner already released. Cannot run queries anymore.'),
  wrap({ cause: wrap({ cause: server('EPIPE') }) }),
  wrap({ meta: { driverAdapterError: wrap({ cause: { kind: 'ConnectionClosed' } }) } }),
])('a lost connection is seen in: $message $code', (error) => {
  expect(isConnectionLoss(error)).toBe(true)
})

test('an answer of the server is not a lost connection, whatever its words are', () => {
  expect(isConnectionLoss(Object.assign(new Error('connection terminated, says a trigger'), { code: 'P0001' }))).toBe(false)
})

test('a failure of the server that leaves the session open is not a lost connection', () => {
  expect(isConnectionLoss(Object.assign(server('XX000'), { severity: 'ERROR' }))).toBe(false)
})

test.each(['28P01', '28000', '3D000', '42501', '42704', '22023', '55000'])(
  'a session that the server refuses for what was asked (%s) is no outage that one could wait for',
  (code) => expect([isConnectionLoss(fatal(code)), isUnavailable(fatal(code))]).toEqual([false, false]),
)

test.each([
  server('53300'),
  server('57014'),
  server('ECONNREFUSED'),
  new Error('timeout exceeded when trying to connect'),
  wrap({ code: 'P2024', message: 'Timed out fetching a new connection from the connection pool.' }),
  wrap({ code: 'P2028', message: 'Transaction API error: Unable to start a transaction in the given time.' }),
])('a database that cannot do it now is seen in: $message $code', (error) => {
  expect(isUnavailable(error)).toBe(true)
})

test('a transaction that the closure let expire is not a database that cannot do it now', () => {
  const expired = wrap({ code: 'P2028', message: 'Transaction API error: A query cannot be executed on an expired transaction.' })
  expect(isUnavailable(expired)).toBe(false)
})

test('only serialisation failures and deadlocks may be run again', () => {
  expect(['40001', '40P01', '40000', '23505', '55P03', undefined].filter(isRetryableState)).toEqual(['40001', '40P01'])
  expect([isLockTimeout(server('55P03')), isLockTimeout(server('57014'))]).toEqual([true, false])
})

test('a failure of the server itself is told from an answer', () => {
  expect(['XX000', '58030', '23505', '40001'].filter(isSystemFailure)).toEqual(['XX000', '58030'])
})
