/** The limits Google documents for a publish request, and the refusals that name them. */
import type { IncomingMessage, PublishRequest } from './protocol/publish-codec.ts'
import { invalid } from './rpc-error.ts'

export const publishLimits = {
  requestMessages: 1_000,
  /** Data, attributes and ordering key: of one message, and of all messages of a request together. */
  requestBytes: 10_000_000,
  messageBytes: 10_000_000,
  attributes: 100,
  attributeKeyBytes: 256,
  attributeValueBytes: 1_024,
  orderingKeyBytes: 1_024,
} as const

/** Throws INVALID_ARGUMENT when Google would; nothing of a refused request is published. */
export function checkPublish(request: PublishRequest): void {
  const { messages } = request
  if (messages.length === 0)
    throw invalid('The value for message_count is too small. You passed 0 in the request, but the minimum value is 1.')
  tooLarge('message_count', messages.length, publishLimits.requestMessages)
  const orderingKey = messages[0]?.orderingKey ?? ''
  let total = 0
  for (const message of messages) {
    total += checkMessage(message)
    if (message.orderingKey !== orderingKey) {
      throw invalid(
        'In a single publish request, all messages must have no ordering key or they must all have the same ordering key.',
      )
    }
  }
  tooLarge('request_size', total, publishLimits.requestBytes)
}

function checkMessage(message: IncomingMessage): number {
  if (message.dataBytes === 0 && message.attributeCount === 0) {
    throw invalid(
      'One or more messages in the publish request is empty. Each message must contain either non-empty data, or at least one attribute.',
    )
  }
  const keyBytes = Buffer.byteLength(message.orderingKey)
  const size = message.dataBytes + message.attributeBytes + keyBytes
  tooLarge('message_size', size, publishLimits.messageBytes)
  tooLarge('attribute_count', message.attributeCount, publishLimits.attributes)
  tooLarge('attribute_key_size', message.longestKeyBytes, publishLimits.attributeKeyBytes)
  tooLarge('attribute_value_size', message.longestValueBytes, publishLimits.attributeValueBytes)
  tooLarge('ordering_key_size', keyBytes, publishLimits.orderingKeyBytes)
  return size
}

function tooLarge(what: string, value: number, limit: number): void {
  if (value > limit) {
    throw invalid(`The value for ${what} is too large. You passed ${value} in the request, but the maximum value is ${limit}.`)
  }
}
