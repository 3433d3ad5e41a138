import { expect, test } from 'vitest'
import type { Breaker } from '../../core/service/breaker.ts'
import type { LaneLeases } from '../../postgres/lanes/lane-leases.ts'
import { yielding } from './pace.ts'

const never = new AbortController().signal

test('a relay that could not say farewell says it again, and no more once it was heard', async () => {
  const farewells = [new Error('the connection is lost'), undefined]
  let said = 0
  const leases: Pick<LaneLeases, 'release'> = {
    release: async () => {
      const error = farewells[(said += 1) - 1]
      if (error !== undefined) throw error
    },
  }
  const breaker: Pick<Breaker, 'waitMs' | 'openForMs'> = { waitMs: () => 1_000, openForMs: () => 60_000 }
  const pass = yielding(() => Promise.reject(new Error('It cannot publish.')), {
    breaker: breaker as Breaker,
    leases: leases as LaneLeases,
    leaseMs: 10_000,
    count: async () => 'idle',
  })
  await expect(pass(never)).rejects.toThrow('the connection is lost')
  expect(await pass(never)).toBe('idle')
  expect(await pass(never)).toBe('idle')
  expect(said).toBe(2)
})
