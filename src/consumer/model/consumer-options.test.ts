import { expect, test } from 'vitest'
import { videos } from '../../../test/setup/outbox-fixture.ts'
import type { Database } from '../../postgres/query/database.ts'
import { memory } from '../../transport/memory/memory.ts'
import { resolveConsumerOptions, type ConsumerOptions } from './consumer-options.ts'

const nobodyAsks = (): Promise<never> => Promise.reject(new Error('nobody asks'))
const db: Database = { query: nobodyAsks, attempt: nobodyAsks }
const required = { db, transport: memory(), name: 'catalog', streams: [videos] }

test('a back-off is filled from the defaults, and refused where it could not be computed with', () => {
  expect(resolveConsumerOptions({ ...required, backoff: { firstMs: 1 } }).backoff).toMatchObject({ firstMs: 1, maxMs: 60_000 })
  const wrong = { ...required, backoff: { firstMs: '60s' } } as unknown as ConsumerOptions
  expect(() => resolveConsumerOptions(wrong)).toThrow('consumer.backoff.firstMs: must be a whole number')
})
