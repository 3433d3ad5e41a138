/** Creating, changing and deleting topics, which subscriptions outlive with what they hold; and deleting the schema of topics. */
import type { Broker } from '../broker/broker.ts'
import { checkRange } from '../broker/subscription-settings.ts'
import { Topic } from '../broker/topic.ts'
import { applyFieldMask } from '../model/field-mask.ts'
import { checkLabels, checkName } from '../model/names.ts'
import { deletedTopic } from '../model/resources.ts'
import type { TopicResource } from '../model/resources.ts'
import { alreadyExists, invalid, notFound, RpcError } from '../model/rpc-error.ts'
import { deletedSchema } from '../schema/schema-registry.ts'

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

/** Topics whose messages were checked by the schema refuse messages from now on. */
export function deleteSchema(broker: Broker, name: string): void {
  if (!broker.schemas.has(name)) throw notFound('schema', name)
  for (const topic of broker.topics.values()) {
    const { schemaSettings } = topic.resource
    if (schemaSettings?.schema !== name) continue
    topic.resource = { ...topic.resource, schemaSettings: { ...schemaSettings, schema: deletedSchema } }
    broker.journal.put('topic', topic.resource.name, topic.resource)
  }
  broker.policies.forget(name)
  broker.schemas.delete(name)
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
