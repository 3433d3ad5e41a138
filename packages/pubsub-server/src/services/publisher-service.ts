/** google.pubsub.v1.Publisher over the broker. */
import type { Message } from '../model/message.ts'
import { checkProject, isIn } from '../model/names.ts'
import { checkPublish } from '../model/publish-limits.ts'
import type { TopicResource } from '../model/resources.ts'
import { RpcError } from '../model/rpc-error.ts'
import { detachSubscription } from '../operations/subscriptions.ts'
import { createTopic, deleteTopic, updateTopic } from '../operations/topics.ts'
import type { MethodDefinition } from '../protocol/protocol.ts'
import { decodePublishRequest, encodePublishResponse } from '../protocol/publish-codec.ts'
import type { PublishRequest } from '../protocol/publish-codec.ts'
import { refuse, unary } from './call.ts'
import type { CallContext, UnaryHandler } from './call.ts'
import { pageOf } from './page.ts'
import type { PageRequest } from './page.ts'

/** Publish keeps the bytes of messages as they are. */
export const publisherCodecs: Readonly<Record<string, Partial<MethodDefinition>>> = {
  Publish: { requestDeserialize: decodePublishRequest, responseSerialize: encodePublishResponse },
}

export function publisherService(context: CallContext): Record<string, UnaryHandler> {
  const { broker } = context
  return {
    CreateTopic: unary(context, (topic: TopicResource) => createTopic(broker, topic)),
    UpdateTopic: unary(context, (request: { topic?: TopicResource; updateMask?: { paths?: string[] } }) =>
      updateTopic(broker, request.topic ?? { name: '' }, request.updateMask?.paths ?? []),
    ),
    Publish: unary(context, (request: PublishRequest) => publish(context, request)),
    GetTopic: unary(context, ({ topic }: { topic: string }) => broker.topic(topic).resource),
    ListTopics: unary(context, (request: PageRequest & { project: string }) => {
      const project = checkProject(request.project)
      const own = [...broker.topics.values()].map(({ resource }) => resource).filter(({ name }) => isIn(project, name))
      const page = pageOf(own, ({ name }) => name, request)
      return { topics: page.items, nextPageToken: page.nextPageToken }
    }),
    ListTopicSubscriptions: unary(context, (request: PageRequest & { topic: string }) => {
      const page = pageOf(broker.topic(request.topic).subscriptions, ({ name }) => name, request)
      return { subscriptions: page.items.map(({ name }) => name), nextPageToken: page.nextPageToken }
    }),
    ListTopicSnapshots: unary(context, (request: PageRequest & { topic: string }) => {
      const page = pageOf(broker.topic(request.topic).snapshots, ({ resource }) => resource.name, request)
      return { snapshots: page.items.map(({ resource }) => resource.name), nextPageToken: page.nextPageToken }
    }),
    DeleteTopic: unary(context, ({ topic }: { topic: string }) => {
      deleteTopic(broker, topic)
      return {}
    }),
    DetachSubscription: unary(context, ({ subscription }: { subscription: string }) => {
      detachSubscription(broker, subscription)
      return {}
    }),
  }
}

function publish({ broker }: CallContext, request: PublishRequest): { messages: readonly Message[] } | Promise<never> {
  refuse(broker.faults)
  const topic = broker.topic(request.topic)
  checkPublish(request)
  const { schemaSettings } = topic.resource
  const extra = schemaSettings === undefined ? undefined : broker.schemas.checkPublish(schemaSettings, request.messages)
  const messages = broker.publish(topic, request.messages, extra)
  if (broker.faults.strikes('publishError')) {
    const status = broker.faults.flip() ? 'UNAVAILABLE' : 'DEADLINE_EXCEEDED'
    const error = new RpcError(status, 'Fault: the messages were stored, and the answer got lost.')
    return Promise.resolve(broker.journal.flushed()).then(() => Promise.reject(error))
  }
  return { messages }
}
