import { expect, test } from 'vitest'
import { fingerprint } from './fingerprint.ts'

test('the command is part of it, and the order of keys is not', () => {
  expect(fingerprint('Buy', { a: 1, b: 2 })).toBe(fingerprint('Buy', { b: 2, a: 1 }))
  expect(fingerprint('Buy', { a: 1 })).not.toBe(fingerprint('Sell', { a: 1 }))
  expect(fingerprint('Buy', { a: 1 })).toMatch(/^[0-9a-f]{32}$/)
})

test('an input that cannot be compared is refused, with what to do about it', () => {
  expect(() => fingerprint('Upload', { file: new Blob(['one']) })).toThrow(
    expect.objectContaining({
      code: 'INVALID_INPUT',
      message: expect.stringMatching(/^input\.file is an instance of Blob, .*give the command a fingerprint/),
    }),
  )
})
