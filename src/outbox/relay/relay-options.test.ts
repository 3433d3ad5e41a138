import { expect, test } from 'vitest'
import { memory } from '../../transport/memory/memory.ts'
import { createOutbox } from '../outbox.ts'
import { resolveRelayOptions, type RelayOptions } from './relay-options.ts'

const required = { db: { query: () => Promise.reject(new Error('nobody asks')) }, outbox: createOutbox(), transport: memory() }

test('a back-off is filled from the defaults, and refused where it could not be computed with', () => {
  expect(resolveRelayOptions({ ...required, backoff: { firstMs: 60_000 } }).backoff).toMatchObject({
    firstMs: 60_000,
    maxMs: 300_000,
  })
  const wrong = { ...required, backoff: { firstMs: '60s' } } as unknown as RelayOptions
  expect(() => resolveRelayOptions(wrong)).toThrow('relay.backoff.firstMs: must be a whole number')
})
