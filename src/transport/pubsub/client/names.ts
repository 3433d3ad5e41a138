/**
 * The names of things in a Pub/Sub project, made in one place: transport, provisioning and doctor must agree on them.
 *
 *   topic                  <context>.events
 *   subscription           <topic>.<consumer>            one for each consumer
 *   dead-letter topic      <topic>.<consumer>.dead       with the subscription <topic>.<consumer>.dead.<consumer>
 *
 * A key longer than Pub/Sub takes is replaced by its hash: different keys stay different, equal ones equal.
 */
import { createHash } from 'node:crypto'
import { WaybillError } from '../../../core/errors.ts'

/** The longest ordering key Pub/Sub takes. */
const orderingKeyBytes = 1_024
const resourceName = /^[A-Za-z][A-Za-z0-9_.~+%-]{2,254}$/

export function topicPath(projectId: string, topic: string): string {
  return `projects/${projectId}/topics/${checkResourceName('topic', topic)}`
}

export function subscriptionName(topic: string, consumer: string): string {
  return `${topic}.${consumer}`
}

export function subscriptionPath(projectId: string, name: string): string {
  return `projects/${projectId}/subscriptions/${checkResourceName('subscription', name)}`
}

/** The dead-letter topic of a consumer. The consumer itself is subscribed to it, so that it can drain it. */
export function deadLetterName(topic: string, consumer: string): string {
  return `${topic}.${consumer}.dead`
}

export function schemaPath(projectId: string, schema: string): string {
  return `projects/${projectId}/schemas/${checkResourceName('schema', schema)}`
}

export function snapshotPath(projectId: string, snapshot: string): string {
  return `projects/${projectId}/snapshots/${checkResourceName('snapshot', snapshot)}`
}

/** The key as Pub/Sub takes it: itself up to 1 KB, its SHA-256 beyond. */
export function fitOrderingKey(key: string): string {
  // Three bytes at most for each UTF-16 unit: short keys, which all but a few are, need no counting.
  if (key.length * 3 <= orderingKeyBytes || Buffer.byteLength(key) <= orderingKeyBytes) return key
  return createHash('sha256').update(key).digest('hex')
}

function checkResourceName(what: string, name: string): string {
  if (resourceName.test(name) && !name.startsWith('goog')) return name
  throw new WaybillError(
    'INVALID_OPTION',
    `Pub/Sub ${what} ${JSON.stringify(name)}: use 3 to 255 letters, digits and -_.~+%, starting with a letter, not with "goog".`,
  )
}
