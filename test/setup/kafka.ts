/**
 * One Kafka for a whole test run, started when the first test file asks for it: a broker costs seconds, and most runs need none.
 *
 * Behind the door that this opens stands the broker's address. KAFKA_BROKERS names one that runs already; its topics and groups
 * are then left behind.
 */
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { TestProject } from 'vitest/node'

import { errorMessage } from '../../src/core/errors.ts'
import { startKafka, type KafkaCluster } from '../../src/testing/servers/kafka-cluster.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** The port that tells the brokers to whoever connects. */
    kafkaDoor: number
  }
}

/** What the door says, as a line of JSON. */
export interface DoorAnswer {
  readonly brokers?: readonly string[]
  readonly error?: string
}

export async function setup(project: Pick<TestProject, 'provide'>): Promise<() => Promise<void>> {
  const given = process.env['KAFKA_BROKERS']
  let starting: Promise<KafkaCluster> | undefined
  const answer = async (): Promise<DoorAnswer> => {
    if (given !== undefined) return { brokers: given.split(',') }
    try {
      starting ??= startKafka()
      return { brokers: (await starting).brokers }
    } catch (error) {
      return { error: errorMessage(error) }
    }
  }
  const door = createServer((socket) => {
    socket.on('error', () => {})
    void answer().then((said) => socket.end(JSON.stringify(said)))
  })
  door.listen(0, '127.0.0.1')
  await once(door, 'listening')
  project.provide('kafkaDoor', (door.address() as { port: number }).port)
  return async () => {
    door.close()
    await (await starting?.catch(() => undefined))?.stop()
  }
}
