import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { goldenKeys } from './golden-keys.ts'
import { murmur2, partitionOf } from '../../src/transport/kafka/publish/partitioner.ts'

test("keys go to the partitions that Kafka's Java producer was seen to put them into", () => {
  const stored = JSON.parse(readFileSync(new URL('golden-partitions.json', import.meta.url), 'utf8')) as unknown
  expect(goldenKeys().map(({ key, partitions }) => partitionOf(key, partitions))).toEqual(stored)
})

test('the hash is the one that Kafka documents in its own tests', () => {
  const hashes = { '21': -973932308, foobar: -790332482, 'a-little-bit-long-string': -985981536 }
  for (const [key, hash] of Object.entries(hashes)) expect(murmur2(Buffer.from(key))).toBe(hash)
})
