/**
 * Kills the node that leads a partition, without a word, while traffic goes on; starts it again, and goes for the next leader.
 */
import { eventually } from '../../src/testing/eventually.ts'
import type { KafkaCluster } from '../../src/testing/kafka-cluster.ts'
import { createKafkaAdmin } from '../../src/transport/kafka/kafka-admin.ts'

export interface LeaderKillsOptions {
  readonly cluster: KafkaCluster
  readonly topic: string
  readonly times: number
  /** How far the traffic is. It has to go on until all is done: a leader of nothing is no leader. */
  readonly progress: () => number
  /** How much of it lies between two kills. */
  readonly step: number
}

const patience = { timeoutMs: 180_000, intervalMs: 50 }

/** Resolves with how often a leader was killed. */
export async function killLeaders({ cluster, topic, times, progress, step }: LeaderKillsOptions): Promise<number> {
  const admin = createKafkaAdmin({ brokers: cluster.brokers })
  let kills = 0
  for (; kills < times; kills += 1) {
    await eventually(() => progress() >= step * (kills + 1), patience)
    const leader = (await admin.describeTopic(topic)).partitions[0]?.leader
    const node = cluster.node(leader ?? 1)
    await node.kill()
    // Another node leads it, and the traffic goes on, before the killed one is back.
    await eventually(
      async () => (await admin.describeTopic(topic)).partitions.every(({ leader: now }) => now !== undefined && now !== node.id),
      patience,
    )
    const before = progress()
    await eventually(() => progress() > before, patience)
    await node.start()
  }
  await admin.close()
  return kills
}
