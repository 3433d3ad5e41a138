/**
 * Kills the node that leads a partition, without a word, while traffic goes on; starts it again, and goes for the next leader.
 */
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { KafkaCluster } from '../../src/testing/servers/kafka-cluster.ts'
import { createKafkaAdmin, type KafkaAdmin } from '../../src/transport/kafka/admin.ts'

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
    const node = cluster.node(await eventually(() => leaderOf(admin, topic), patience))
    await node.kill()
    // Another node leads it, and the traffic goes on, before the killed one is back.
    if (await isLedWithout(node.id, admin, topic)) {
      const before = progress()
      await eventually(() => progress() > before, patience)
    }
    // It starts beside a busy cluster; one that took too long is ended by then, and starts anew.
    await eventually(() => node.start(), patience)
  }
  await admin.close()
  return kills
}

/** Who leads the first partition; a cluster that was just hurt may not say, and has no leader for a moment. */
async function leaderOf(admin: KafkaAdmin, topic: string): Promise<number> {
  const leader = (await admin.describeTopic(topic)).partitions[0]?.leader
  if (leader === undefined) throw new Error(`Nobody leads the first partition of ${topic}.`)
  return leader
}

/** Whether others take over all that a node has led. If it alone was in sync, because they had stood still, none may lead without it. */
async function isLedWithout(id: number, admin: KafkaAdmin, topic: string): Promise<boolean> {
  const isLed = async (): Promise<boolean> =>
    (await admin.describeTopic(topic)).partitions.every(({ leader }) => leader !== undefined && leader !== id)
  return await eventually(isLed, { ...patience, timeoutMs: 30_000 }).catch(() => false)
}
