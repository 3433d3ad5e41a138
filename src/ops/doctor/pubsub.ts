/**
 * Looks at the subscriptions of a service and says what would lose messages, reorder them or stop a replay.
 *
 * It only reads. Each finding names the resource, what is wrong, what that leads to, and what to do about it.
 */
import type { PubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import type { SubscriptionSettings, TopicSettings } from '../../transport/pubsub/admin/resources.ts'
import { type DesiredResources, isProvisional } from '../provision/desired.ts'
import { howToMakeAnew, missingGrants } from '../provision/provision.ts'

export type PubsubProblem =
  | 'topic-missing'
  | 'subscription-missing'
  | 'other-topic'
  | 'unfinished'
  | 'filtered'
  | 'ordering-off'
  | 'retry-policy-missing'
  | 'retention-short'
  | 'acked-not-retained'
  | 'expires'
  | 'dead-letter-missing'
  | 'dead-letter-unwanted'
  | 'dead-letter-unreachable'
  | 'dead-letter-unsubscribed'
  | 'grant-missing'

export interface PubsubFinding {
  readonly problem: PubsubProblem
  /** The topic or subscription that it is about. */
  readonly resource: string
  readonly text: string
}

export interface DoctorPubsubOptions {
  readonly desired: DesiredResources
  /** How far back a replay must be able to go. @default what provisioning would set */
  readonly replaySeconds?: number
}

/** Everything that is wrong; empty if nothing is. */
export async function doctorPubsub(admin: PubsubAdmin, options: DoctorPubsubOptions): Promise<readonly PubsubFinding[]> {
  const { topics, subscriptions, grants } = options.desired
  const ofTopics = await Promise.all(topics.map(async (wanted) => checkTopic(wanted, await admin.getTopic(wanted.name))))
  const ofSubscriptions = await Promise.all(subscriptions.map((wanted) => checkSubscription(admin, wanted, options)))
  const ofGrants = (await missingGrants(admin, grants)).map(({ kind, name, role, member }) =>
    finding('grant-missing', name, `${member} lacks ${role} on this ${kind}`),
  )
  return [...ofTopics, ...ofSubscriptions, ofGrants].flat()
}

function checkTopic({ name, retentionSeconds }: TopicSettings, found: TopicSettings | undefined): PubsubFinding[] {
  if (found === undefined) return [finding('topic-missing', name, 'the topic does not exist: nothing can be published to it')]
  if (isProvisional(found)) {
    const text = 'provisioning was broken off before it was done, and the topic still keeps everything'
    return [finding('unfinished', name, text)]
  }
  if (found.retentionSeconds >= retentionSeconds) return []
  const text = `the topic keeps messages for ${found.retentionSeconds} s; a rebuild has to reach back ${retentionSeconds} s`
  return [finding('retention-short', name, text)]
}

async function checkSubscription(
  admin: PubsubAdmin,
  wanted: SubscriptionSettings,
  options: DoctorPubsubOptions,
): Promise<PubsubFinding[]> {
  const { name } = wanted
  const found = await admin.getSubscription(name)
  if (found === undefined)
    return [finding('subscription-missing', name, 'the subscription does not exist: its consumer gets nothing')]
  // A dead-letter subscription is drained, not replayed, so no horizon but its own applies to it.
  const isReplayed = wanted.isRetainingAcked
  const horizonSeconds = isReplayed ? (options.replaySeconds ?? wanted.retentionSeconds) : wanted.retentionSeconds
  const findings: PubsubFinding[] = []
  // Also one of a topic that was deleted: made again under its name, that is another topic.
  if (found.topic !== wanted.topic) {
    const text = `it reads from ${found.topic}: nothing that is published to ${wanted.topic} reaches it`
    findings.push(finding('other-topic', name, text, howToMakeAnew))
  }
  if (found.filter !== undefined) {
    const text = `it has the filter ${found.filter}: Pub/Sub acknowledges what does not match, and its consumer never gets that`
    findings.push(finding('filtered', name, `${text}. A filter cannot be changed in place`, howToMakeAnew))
  }
  if (wanted.isOrdered && !found.isOrdered) {
    const text = 'message ordering is off: events of one aggregate can overtake each other. That cannot be changed in place'
    findings.push(finding('ordering-off', name, text, howToMakeAnew))
  }
  if (found.retry === undefined) {
    findings.push(
      finding('retry-policy-missing', name, 'it has no retry policy: a message that fails is delivered again at once, for ever'),
    )
  }
  if (isProvisional(found)) {
    const text = 'provisioning was broken off before it was done: its consumer may lack what was published before it was made'
    findings.push(finding('unfinished', name, text))
  } else if (found.retentionSeconds < horizonSeconds) {
    const text = `it keeps messages for ${found.retentionSeconds} s; a replay has to reach back ${horizonSeconds} s`
    findings.push(finding('retention-short', name, text))
  }
  if (isReplayed && !found.isRetainingAcked) {
    findings.push(finding('acked-not-retained', name, 'acknowledged messages are not retained: a replay finds nothing'))
  }
  if (found.expiresAfterSeconds > 0) {
    const days = Math.floor(found.expiresAfterSeconds / 86_400)
    findings.push(finding('expires', name, `it is deleted, with its backlog, after ${days} days without a consumer`))
  }
  return isReplayed ? [...findings, ...(await checkDeadLetters(admin, wanted, found))] : findings
}

async function checkDeadLetters(
  admin: PubsubAdmin,
  wanted: SubscriptionSettings,
  { name, deadLetter }: SubscriptionSettings,
): Promise<PubsubFinding[]> {
  if (wanted.deadLetter === undefined) {
    const text = 'it has a dead-letter topic: Pub/Sub takes away what its consumer stopped at, and the key goes on without it'
    return deadLetter === undefined ? [] : [finding('dead-letter-unwanted', name, text)]
  }
  if (deadLetter === undefined) {
    return [
      finding('dead-letter-missing', name, 'it has no dead-letter topic: a message that always fails blocks its key for ever'),
    ]
  }
  if ((await admin.getTopic(deadLetter.topic)) === undefined) {
    return [finding('dead-letter-unreachable', name, `its dead-letter topic ${deadLetter.topic} does not exist`)]
  }
  const subscribed = await admin.subscriptionsOf(deadLetter.topic)
  if (subscribed.length > 0) return []
  return [
    finding(
      'dead-letter-unsubscribed',
      deadLetter.topic,
      'nobody is subscribed to this dead-letter topic: what lands there is lost',
    ),
  ]
}

function finding(problem: PubsubProblem, resource: string, text: string, how = 'Run: waybill provision --apply'): PubsubFinding {
  return { problem, resource, text: `${resource}: ${text}. ${how}` }
}
