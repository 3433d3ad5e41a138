import { Metadata } from '@grpc/grpc-js'
import { expect, test } from 'vitest'
import { readTokenHeader, writeTokenHeader } from './token-header.ts'

test('a token travels in a header of Fetch, of Node, and in metadata of gRPC alike', () => {
  const headers = writeTokenHeader('w2.abc')
  const metadata = new Metadata()
  for (const [name, value] of Object.entries(headers)) metadata.set(name, value)
  expect(readTokenHeader(metadata)).toBe('w2.abc')
  expect(readTokenHeader({ 'waybill-token': ['w2.abc'] })).toBe('w2.abc')
  expect(readTokenHeader(new Headers(headers))).toBe('w2.abc')
  expect(readTokenHeader({ ...headers })).toBe('w2.abc')
})

test('no token is no header, and no header is no token', () => {
  expect(writeTokenHeader(undefined)).toEqual({})
  expect(writeTokenHeader('')).toEqual({})
  expect(readTokenHeader(new Headers())).toBeUndefined()
  expect(readTokenHeader({})).toBeUndefined()
  expect(readTokenHeader(new Metadata())).toBeUndefined()
  expect(readTokenHeader({ 'waybill-token': ' ' })).toBeUndefined()
})

test('a token that came twice is refused instead of one being chosen', () => {
  const twice = new Headers([
    ['waybill-token', 'w2.a'],
    ['waybill-token', 'w2.b'],
  ])
  const metadata = new Metadata()
  for (const token of ['w2.a', 'w2.b']) metadata.add('waybill-token', token)
  expect(() => readTokenHeader(twice)).toThrow(/more than once/)
  expect(() => readTokenHeader(metadata)).toThrow(/more than once/)
  expect(() => readTokenHeader({ 'waybill-token': ['w2.a', 'w2.b'] })).toThrow(/more than once/)
})
