import { expect, test } from 'vitest'

import { eventually } from './eventually.ts'

test('the first result that is not false is returned, and errors before it are forgiven', async () => {
  let looks = 0
  const check = (): number | false => {
    looks += 1
    if (looks === 1) throw new Error('not yet')
    return looks >= 3 && looks
  }
  expect(await eventually(check, { intervalMs: 1 })).toBe(3)
})

test('a check that never passes fails with its own last error', async () => {
  const check = async (): Promise<void> => {
    throw new Error('the backlog is 7')
  }
  await expect(eventually(check, { timeoutMs: 5, intervalMs: 1 })).rejects.toThrow('Not true within 5 ms: the backlog is 7')
  await expect(eventually(() => false, { timeoutMs: 0 })).rejects.toThrow('still returned false')
})
