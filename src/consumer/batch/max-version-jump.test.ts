import { expect, test } from 'vitest'
import { jumpsOf } from './max-version-jump.ts'

const item = (key: string, version: bigint, kind: 'delivery' | 'dead' = 'delivery') =>
  ({ key, event: { version }, origin: { kind } }) as never as Parameters<typeof jumpsOf>[0][number]

test('a version is believed up to the limit ahead of the last one believed, in the database or in the batch', () => {
  const items = [item('a', 15n), item('a', 25n), item('a', 36n), item('a', 37n), item('b', 10n), item('c', 11n), item('c', 22n)]
  const jumps = jumpsOf(items, new Map([['a', 5n]]), 10n)
  expect([...jumps]).toEqual([items[2], items[3], items[6]])
})

test('what is behind is no jump, and what an operator redrives neither is one nor makes the next one look like one', () => {
  const items = [item('a', 1n), item('a', 2n ** 62n, 'dead'), item('a', 2n ** 62n + 10n)]
  expect([...jumpsOf(items, new Map([['a', 5n]]), 10n)]).toEqual([])
})
