/** The limits Google documents for a publish request, and the refusals that name them. */
import type { IncomingMessage, PublishRequest } from '../protocol/publish-codec.ts'
import { invalid } from './rpc-error.ts'

export const publishLimits = {
  requestMessages: 1_000,
  /** The whole request as it is encoded. One message may have as much, and is never larger than its request. */
  requestBytes: 10_000_000,
  attributes: 100,
  attributeKeyBytes: 256,
  attributeValueBytes: 1_024,
  orderingKeyBytes: 1_024,
} as const

/** Throws INVALID_ARGUMENT when Google would; nothing of a refused request is published. */
export function checkPublish(request: PublishRequest): void {
  const { messages, encodedBytes } = request
  tooLarge('request_size', encodedBytes, publishLimits.requestBytes)
  if (messages.length === 0)
    throw invalid('The value for message_count is too small. You passed 0 in the request, but the minimum value is 1.')
  tooLarge('message_count', messages.length, publishLimits.requestMessages)
  const orderingKey = messages[0]?.orderingKey ?? ''
  for (const message of messages) {
    checkMessage(message)
    if (message.orderingKey !== orderingKey) {
      throw invalid(
        'In a single publish request, all messages must have no ordering key or they must all have the same ordering key.',
      )
    }
  }
}

function checkMessage(message: IncomingMessage): void {
  if (message.dataBytes === 0 && message.attributeCount === 0) {
    throw invalid(
      'One or more messages in the publish request is empty. Each message must contain either non-empty data, or at least one attribute.',
    )
  }
  tooLarge('attribute_count', message.attributeCount, publishLimits.attributes)
  tooLarge('attribute_key_size', message.longestKeyBytes, publishLimits.attributeKeyBytes)
  tooLarge('attribute_value_size', message.longestValueBytes, publishLimits.attributeValueBytes)
  tooLarge('ordering_key_size', Buffer.byteLength(message.orderingKey), publishLimits.orderingKeyBytes)
}

function tooLarge(what: string, value: number, limit: number): void {
  if (value > limit) {
    throw invalid(`The value for ${what} is too large. You passed ${value} in the request, but the maximum value is ${limit}.`)
  }
}
