/** google.pubsub.v1.Subscriber over the broker, except StreamingPull. */
import type { ServerUnaryCall } from '@grpc/grpc-js'
import type { Broker } from '../broker/broker.ts'
import { resolveSubscription } from '../broker/subscription-settings.ts'
import { checkProject, isIn } from '../model/names.ts'
import type { SubscriptionResource } from '../model/resources.ts'
import { invalid } from '../model/rpc-error.ts'
import { checkAttached, createSubscription, deleteSubscription, updateSubscription } from '../operations/subscriptions.ts'
import type { MethodDefinition } from '../protocol/protocol.ts'
import {
  decodeAcknowledge,
  decodeModifyAckDeadline,
  decodeStreamingPull,
  emptyBytes,
  encodeDeliveries,
} from '../protocol/subscriber-codec.ts'
import type { AcknowledgeRequest, ModifyAckDeadlineRequest } from '../protocol/subscriber-codec.ts'
import { Receiver } from '../queue/receiver.ts'
import { acknowledge, checkAckIds, checkDeadline, modifyDeadlines, throwFailures } from './acknowledging.ts'
import { refuse, unary } from './call.ts'
import type { CallContext, UnaryHandler } from './call.ts'
import { pageOf } from './page.ts'
import type { PageRequest } from './page.ts'

const asIs = (bytes: Buffer): Buffer => bytes

/** Deliveries and acknowledgements are read and written by hand. */
export const subscriberCodecs: Readonly<Record<string, Partial<MethodDefinition>>> = {
  Acknowledge: { requestDeserialize: decodeAcknowledge, responseSerialize: () => emptyBytes },
  ModifyAckDeadline: { requestDeserialize: decodeModifyAckDeadline, responseSerialize: () => emptyBytes },
  Pull: { responseSerialize: asIs },
  StreamingPull: { requestDeserialize: decodeStreamingPull, responseSerialize: asIs },
}

interface PullRequest {
  readonly subscription: string
  readonly maxMessages?: number
  readonly returnImmediately?: boolean
}

/** How long a Pull waits for a first message before it answers with none. */
const pullWaitMs = 20_000

export function subscriberService(context: CallContext): Record<string, UnaryHandler> {
  const { broker } = context
  return {
    CreateSubscription: unary(context, (given: SubscriptionResource) => createSubscription(broker, given)),
    GetSubscription: unary(context, ({ subscription }: { subscription: string }) => broker.subscription(subscription).resource),
    UpdateSubscription: unary(context, (request: { subscription?: SubscriptionResource; updateMask?: { paths?: string[] } }) =>
      updateSubscription(broker, request.subscription ?? { name: '', topic: '' }, request.updateMask?.paths ?? []),
    ),
    ListSubscriptions: unary(context, (request: PageRequest & { project: string }) => {
      const project = checkProject(request.project)
      const own = [...broker.subscriptions.values()].map(({ resource }) => resource).filter(({ name }) => isIn(project, name))
      const page = pageOf(own, ({ name }) => name, request)
      return { subscriptions: page.items, nextPageToken: page.nextPageToken }
    }),
    DeleteSubscription: unary(context, ({ subscription }: { subscription: string }) => {
      deleteSubscription(broker, subscription)
      return {}
    }),
    ModifyPushConfig: unary(context, (request: { subscription: string; pushConfig?: { pushEndpoint?: string } }) => {
      const { resource } = broker.subscription(request.subscription)
      resolveSubscription({ ...resource, pushConfig: request.pushConfig ?? {} })
      return {}
    }),
    Acknowledge: unary(context, (request: AcknowledgeRequest) => {
      refuse(broker.faults)
      const subscription = broker.subscription(request.subscription)
      checkAckIds(request.acks)
      throwFailures(acknowledge(subscription, request.acks, broker.faults))
    }),
    ModifyAckDeadline: unary(context, (request: ModifyAckDeadlineRequest) => {
      refuse(broker.faults)
      const subscription = broker.subscription(request.subscription)
      checkAckIds(request.acks)
      checkDeadline(request.ackDeadlineSeconds)
      throwFailures(modifyDeadlines(subscription, request.acks, () => request.ackDeadlineSeconds))
    }),
    Pull: unary(context, (request: PullRequest, call) => pull(broker, request, call)),
  }
}

async function pull(broker: Broker, request: PullRequest, call: ServerUnaryCall<unknown, unknown>): Promise<Buffer> {
  refuse(broker.faults)
  const subscription = broker.subscription(request.subscription)
  const { maxMessages = 0 } = request
  if (maxMessages <= 0)
    throw invalid(`The value for max_messages is too small. You passed ${maxMessages}, but the minimum value is 1.`)
  checkAttached(subscription)
  const { dispatcher, queue, resource } = subscription
  const receiver = new Receiver(false, (resource.ackDeadlineSeconds ?? 10) * 1000)
  const waiting = new AbortController()
  call.once('cancelled', () => waiting.abort())
  if (request.returnImmediately !== true) void broker.clock.sleep(pullWaitMs, waiting.signal).then(() => waiting.abort())
  const signal = request.returnImmediately === true ? null : waiting.signal
  const entries = await dispatcher.pull(receiver, Math.min(maxMessages, 1_000), signal)
  waiting.abort()
  return encodeDeliveries(entries, queue.policy.maxDeliveryAttempts > 0)
}
