/**
 * The Kafka that all cells on it share: one that runs already, if KAFKA_BROKERS names a single broker, or one of our own.
 *
 * Our own lets members be silent for a moment only; others have a shortest session of six seconds unless they are told otherwise.
 */
import { startKafka } from '../../src/testing/servers/kafka-cluster.ts'
import { missingForKafka } from '../../src/testing/servers/kafka-programs.ts'

export interface SharedKafka {
  /** `host:port` of its only broker. */
  readonly broker: string
  /** How long a member may be silent. */
  readonly sessionMs: number
}

/** What this machine lacks for the cells on Kafka, and how to get it. */
export function missingSharedKafka(): string | undefined {
  return givenBroker() === undefined ? missingForKafka() : undefined
}

export async function openSharedKafka(): Promise<SharedKafka & { close(): Promise<void> }> {
  const given = givenBroker()
  if (given !== undefined) return { ...sharedKafka([given]), close: () => Promise.resolve() }
  const cluster = await startKafka()
  return { ...sharedKafka(cluster.brokers), close: () => cluster.stop() }
}

/** The Kafka of a test run. */
export function sharedKafka([broker, ...others]: readonly string[]): SharedKafka {
  if (broker === undefined || others.length > 0) throw new Error('The crash matrix needs a Kafka of one broker.')
  return { broker, sessionMs: process.env['KAFKA_BROKERS'] === undefined ? 1_000 : 6_000 }
}

function givenBroker(): string | undefined {
  const given = process.env['KAFKA_BROKERS']
  return given === undefined || given.includes(',') ? undefined : given
}
