import { expect, test } from 'vitest'
import { contentHash } from './content-hash.ts'

const json = (text: string): string => contentHash(Buffer.from(text), 'application/json')

test('of JSON it is of the value, whatever the order of names and the spelling', () => {
  expect(json('{"a":1,"b":[{"c":2,"d":3}]}')).toBe(json('{ "b": [{"d":3, "c":2.0}], "\\u0061": 1 }'))
  expect(json('{"a":1}')).toMatch(/^[0-9a-f]{32}$/)
  const others = ['{"a":"1"}', '{"a":2}', '{"a":null}', '{}', '[1]', '{"a":1,"b":1}']
  expect(new Set([...others, '{"a":1}'].map(json)).size).toBe(others.length + 1)
})

test('of other formats it is of the bytes', () => {
  const hash = (...bytes: number[]): string => contentHash(Uint8Array.from(bytes), 'application/protobuf')
  expect(hash(1, 2)).toBe(hash(1, 2))
  expect(hash(1, 2)).not.toBe(hash(2, 1))
})
