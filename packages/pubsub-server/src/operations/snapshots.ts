/**
 * Snapshots and seeking: which messages a subscription owes, set to another moment.
 *
 * A seek looks at everything still held for the subscription: its own backlog, acknowledged messages it retains, what
 * its topic keeps, and the snapshot's own. Leases end with it; what was in hand may come again.
 */
import type { Broker } from '../broker/broker.ts'
import type { Subscription } from '../broker/topic.ts'
import { applyFieldMask } from '../model/field-mask.ts'
import type { Message } from '../model/message.ts'
import { checkLabels, checkName } from '../model/names.ts'
import { fromMs, toMs } from '../model/resources.ts'
import type { Duration, SnapshotResource } from '../model/resources.ts'
import { alreadyExists, invalid, RpcError } from '../model/rpc-error.ts'
import { Snapshot } from '../model/snapshot.ts'
import { checkAttached } from './subscriptions.ts'

const hourMs = 3_600_000
const lifeMs = 7 * 24 * hourMs
const changeableFields: ReadonlySet<string> = new Set(['labels', 'expireTime'])

export interface NewSnapshot {
  readonly name: string
  readonly subscription: string
  readonly labels?: Readonly<Record<string, string>>
}

export function createSnapshot(broker: Broker, given: NewSnapshot): SnapshotResource {
  checkName('snapshots', given.name)
  checkLabels(given.labels)
  if (broker.snapshots.has(given.name)) throw alreadyExists('snapshot', given.name)
  const subscription = broker.subscription(given.subscription)
  const { topic } = subscription
  if (topic === null) {
    throw new RpcError(
      'FAILED_PRECONDITION',
      `The subscription has no topic (resource=${given.subscription}): nothing to take a snapshot of.`,
    )
  }
  const nowMs = broker.clock.nowMs()
  subscription.queue.dropExpired(nowMs)
  const unacked: Message[] = []
  for (const { message, isAcked } of subscription.queue.retained()) if (!isAcked) unacked.push(message)
  const expireMs = (unacked[0]?.publishMs ?? nowMs) + lifeMs
  if (expireMs - nowMs < hourMs) {
    throw new RpcError('FAILED_PRECONDITION', 'The snapshot would expire within the hour, because its backlog is too old.')
  }
  const { labels = {} } = given
  const resource = { name: given.name, topic: topic.resource.name, expireTime: fromMs(expireMs), labels }
  const snapshot = new Snapshot(resource, broker.lastNumber, unacked)
  broker.snapshots.set(given.name, snapshot)
  topic.snapshots.add(snapshot)
  broker.journal.takeSnapshot(snapshot)
  return resource
}

export function updateSnapshot(broker: Broker, patch: SnapshotResource, paths: readonly string[]): SnapshotResource {
  const snapshot = broker.snapshot(patch.name)
  const resource = applyFieldMask({ current: snapshot.resource, patch, paths, changeable: changeableFields })
  checkLabels(resource.labels)
  if (toMs(resource.expireTime ?? {}) <= broker.clock.nowMs()) throw invalid('expire_time must lie in the future.')
  snapshot.resource = resource
  broker.journal.put('snapshot', resource.name, resource)
  return resource
}

/** Messages published before `time` count as acknowledged, the others as not. A future time discards up to it. */
export function seekToTime(broker: Broker, subscriptionName: string, time: Duration): void {
  const subscription = attached(broker, subscriptionName)
  const timeMs = toMs(time)
  subscription.discardsBeforeMs = timeMs > broker.clock.nowMs() ? timeMs : 0
  seek(broker, subscription, { extra: [], isAcked: ({ publishMs }) => publishMs < timeMs })
}

/** Back to what was unacknowledged when the snapshot was taken, and everything published since. */
export function seekToSnapshot(broker: Broker, subscriptionName: string, snapshotName: string): void {
  const subscription = attached(broker, subscriptionName)
  const snapshot = broker.snapshot(snapshotName)
  if (snapshot.resource.topic !== subscription.resource.topic) {
    throw invalid(`The snapshot is of topic ${snapshot.resource.topic}, the subscription of ${subscription.resource.topic}.`)
  }
  const unacked = new Set(snapshot.unacked.map(({ number }) => number))
  subscription.discardsBeforeMs = 0
  seek(broker, subscription, {
    extra: snapshot.unacked,
    isAcked: ({ number }) => number <= snapshot.takenAt && !unacked.has(number),
  })
}

interface Target {
  readonly extra: readonly Message[]
  readonly isAcked: (message: Message) => boolean
}

function seek(broker: Broker, subscription: Subscription, target: Target): void {
  const nowMs = broker.clock.nowMs()
  subscription.queue.dropExpired(nowMs)
  const messages = new Map<number, Message>()
  for (const { message } of subscription.queue.retained()) messages.set(message.number, message)
  for (const message of [...(subscription.topic?.kept ?? []), ...target.extra]) {
    if (subscription.matches(message)) messages.set(message.number, message)
  }
  const inOrder = [...messages.values()].toSorted((a, b) => a.number - b.number)
  const retained = inOrder.map((message) => ({ message, isAcked: target.isAcked(message) }))
  subscription.queue.reset(retained)
  broker.journal.reset(subscription.name, retained)
}

function attached(broker: Broker, name: string): Subscription {
  const subscription = broker.subscription(name)
  checkAttached(subscription)
  return subscription
}
