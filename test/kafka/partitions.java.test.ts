import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { partitionOf } from '../../src/transport/kafka/publish/partitioner.ts'
import { goldenKeys } from './golden-keys.ts'
import { javaPartitions } from './java-partitions.ts'

test("a thousand keys go to the partitions that Kafka's own Java producer puts them into", { timeout: 240_000 }, async () => {
  const keys = goldenKeys()
  expect(keys.length).toBe(1_000)
  const java = await javaPartitions(keys)
  expect(keys.map(({ key, partitions }) => partitionOf(key, partitions))).toEqual(java)
  const stored = JSON.parse(readFileSync(new URL('golden-partitions.json', import.meta.url), 'utf8')) as unknown
  expect(stored).toEqual(java)
})
