/** Creating, changing and deleting topics. Subscriptions outlive their topic and keep what they hold. */
import type { Broker } from './broker.ts'
import { applyFieldMask } from './field-mask.ts'
import { checkLabels, checkName } from './names.ts'
import type { TopicResource } from './resources.ts'
import { deletedTopic } from './resources.ts'
import { alreadyExists, invalid, RpcError } from './rpc-error.ts'
import { checkRange } from './subscription-settings.ts'
import { Topic } from './topic.ts'

const changeableFields: ReadonlySet<string> = new Set([
  'labels',
  'messageStoragePolicy',
  'kmsKeyName',
  'schemaSettings',
  'messageRetentionDuration',
  'ingestionDataSourceSettings',
  'messageTransforms',
])

export function createTopic(broker: Broker, given: TopicResource): TopicResource {
  checkName('topics', given.name)
  if (broker.topics.has(given.name)) throw alreadyExists('topic', given.name)
  const resource = resolveTopic(broker, given)
  broker.topics.set(resource.name, new Topic(resource))
  broker.journal.put('topic', resource.name, resource)
  return resource
}

export function updateTopic(broker: Broker, patch: TopicResource, paths: readonly string[]): TopicResource {
  const topic = broker.topic(patch.name)
  const changed = applyFieldMask({ current: topic.resource, patch, paths, changeable: changeableFields })
  topic.resource = resolveTopic(broker, changed)
  topic.dropExpired(broker.clock.nowMs())
  for (const subscription of topic.subscriptions) subscription.resource = withTopicRetention(subscription.resource, topic)
  broker.journal.put('topic', topic.resource.name, topic.resource)
  return topic.resource
}

export function deleteTopic(broker: Broker, name: string): void {
  const topic = broker.topic(name)
  broker.topics.delete(name)
  for (const subscription of topic.subscriptions) {
    subscription.topic = null
    subscription.resource = { ...subscription.resource, topic: deletedTopic }
    broker.journal.put('subscription', subscription.name, subscription.resource)
  }
  for (const snapshot of topic.snapshots) {
    snapshot.resource = { ...snapshot.resource, topic: deletedTopic }
    broker.journal.put('snapshot', snapshot.resource.name, snapshot.resource)
  }
  broker.policies.forget(name)
  broker.journal.remove('topic', name)
}

/** A subscription shows how long its topic keeps messages. */
export function withTopicRetention<Resource extends object>(resource: Resource, topic: Topic | null): Resource {
  const { topicMessageRetentionDuration: _, ...rest } = resource as Resource & { topicMessageRetentionDuration?: unknown }
  const duration = topic?.resource.messageRetentionDuration
  return (duration === undefined ? rest : { ...rest, topicMessageRetentionDuration: duration }) as Resource
}

function resolveTopic(broker: Broker, given: TopicResource): TopicResource {
  checkLabels(given.labels)
  if (given.ingestionDataSourceSettings !== undefined || (given.messageTransforms ?? []).length > 0) {
    throw new RpcError('UNIMPLEMENTED', 'This server does not support ingestion or message transforms. Leave them out.')
  }
  const retention = given.messageRetentionDuration
  if (retention !== undefined) checkRange('message_retention_duration', retention, 600_000, 31 * 86_400_000)
  const { schemaSettings } = given
  if (schemaSettings !== undefined) {
    broker.schemas.get(schemaSettings.schema ?? '')
    if (schemaSettings.encoding !== 'JSON' && schemaSettings.encoding !== 'BINARY') {
      throw invalid('schema_settings needs an encoding: JSON or BINARY.')
    }
  }
  return { ...given, state: 'ACTIVE' }
}
