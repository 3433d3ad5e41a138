/**
 * The Kafka of a test file: `const broker = await testKafka()` at the top of the file. All files of a run share it, so topics
 * have names that nobody else has.
 */
import { randomBytes } from 'node:crypto'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, inject } from 'vitest'

import { eventually } from '../../src/testing/kit/eventually.ts'
import { createKafkaAdmin, type KafkaAdmin } from '../../src/transport/kafka/admin.ts'
import type { DoorAnswer } from './kafka.ts'

export interface TestKafka {
  readonly brokers: readonly string[]
  readonly admin: KafkaAdmin
  /** Makes a topic that nobody has used. */
  makeTopic(options?: { readonly partitions?: number; readonly settings?: Readonly<Record<string, string>> }): Promise<string>
}

export async function testKafka(): Promise<TestKafka> {
  const { brokers, error } = JSON.parse(await text(connect(inject('kafkaDoor'), '127.0.0.1'))) as DoorAnswer
  if (brokers === undefined) throw new Error(`There is no Kafka: ${error}`)
  const admin = createKafkaAdmin({ brokers, connectTimeoutMs: 30_000, requestTimeoutMs: 30_000 })
  afterAll(() => admin.close())
  return {
    brokers,
    admin,
    makeTopic: ({ partitions = 4, settings = {} } = {}) =>
      // One that is half made stays behind, under its own name.
      eventually(async () => {
        const name = `t-${randomBytes(6).toString('hex')}.events`
        await admin.createTopic({ name, partitions, replicationFactor: 1, settings })
        return name
      }),
  }
}
