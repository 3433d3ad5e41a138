/** Topics of drills and tests on Pub/Sub: ordered subscriptions with the usual deadline, which end by themselves after a day. */
import type { PubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import { usualLeaseMs } from '../../transport/pubsub/receive/lease-keeper.ts'

/** How long a message may be in hand before Pub/Sub gives it to somebody else. */
export const ackDeadlineSeconds: number = usualLeaseMs(false) / 1_000

export async function makePubsubTopic(admin: PubsubAdmin, topic: string, consumers: readonly string[]): Promise<void> {
  await admin.createTopic({ name: topic, retentionSeconds: 0, schema: undefined })
  for (const consumer of consumers)
    await admin.createSubscription({
      name: `${topic}.${consumer}`,
      topic,
      ackDeadlineSeconds,
      retentionSeconds: 86_400,
      isRetainingAcked: false,
      isOrdered: true,
      isExactlyOnce: false,
      filter: undefined,
      retry: undefined,
      deadLetter: undefined,
      expiresAfterSeconds: 86_400,
    })
}

export async function removePubsubTopic(admin: PubsubAdmin, topic: string, consumers: readonly string[]): Promise<void> {
  for (const consumer of consumers) await admin.deleteSubscription(`${topic}.${consumer}`)
  await admin.deleteTopic(topic)
}
