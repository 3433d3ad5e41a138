/**
 * Publishes to Pub/Sub. A request holds messages of one ordering key, at most 1,000 of them and 9 MB; a message counts as
 * confirmed when the answer to its request says so, and never before.
 *
 * Google's high-level publisher is not used: it retries for ten minutes, overfills ordered requests, and does not stop a key
 * whose publish failed. What breaks a documented limit is refused here, by name, without asking the service.
 */
import { errorMessage, WaybillError } from '../../core/errors.ts'
import { messageBytes, type RunSender } from '../port/publish-runs.ts'
import { toCloudEvent } from './client/attributes.ts'
import type { LazyConnection } from './client/connection.ts'
import { isRejection, isUnroutable, pubsubError } from './client/errors.ts'
import { fitOrderingKey, topicPath } from './client/names.ts'
import type { OutgoingMessage } from '../port/transport.ts'

/** What Google documents for one message, and for one request. */
export const pubsubLimits = {
  /**
   * Body, attributes and key. Google takes 10,000,000 bytes for the request as it is encoded, and a message that goes alone shares
   * them with the path of its topic (up to 400) and with tags and lengths (up to 9 for each of 100 attributes): 2,048 are left for those.
   */
  messageBytes: 9_997_952,
  attributes: 100,
  attributeKeyBytes: 256,
  attributeValueBytes: 1_024,
  requestMessages: 1_000,
  /** Below the documented 10 MB of a request, so that its own overhead has room. A larger message goes alone. */
  requestBytes: 9_000_000,
} as const

export interface PubsubSenderOptions {
  readonly projectId: string
  /** The largest message as it was given: body, attributes and key. */
  readonly maxBytes: number
  readonly publishTimeoutMs: number
  readonly maxConcurrentRequests: number
  readonly attributes: 'plain' | 'cloudevents'
  readonly cloudEventSource: string
}

export function pubsubSender(connection: LazyConnection, options: PubsubSenderOptions): RunSender {
  const { projectId, publishTimeoutMs, maxConcurrentRequests } = options
  return {
    maxRequestMessages: pubsubLimits.requestMessages,
    maxRequestBytes: pubsubLimits.requestBytes,
    maxConcurrentRequests,
    isRejection,
    isUnroutable,
    send: async (messages, signal) => {
      const topic = topicOf(projectId, messages[0]?.topic ?? '')
      const request = { topic, messages: messages.map((message) => encode(message, options)) }
      try {
        const call = { routing: { topic }, timeoutMs: publishTimeoutMs, signal }
        const { messageIds } = await connection.call<{ readonly messageIds: readonly string[] }>('publish', request, call)
        if (messageIds.length !== messages.length) throw shortAnswer(topic, messages.length, messageIds.length)
        return messageIds
      } catch (error) {
        throw pubsubError(error, `publish to ${topic}`)
      }
    },
  }
}

/** A name that no topic can have is the fault of the message: waiting for such a topic would be for ever. */
function topicOf(projectId: string, topic: string): string {
  try {
    return topicPath(projectId, topic)
  } catch (error) {
    throw refused(errorMessage(error).replace(/\.$/, ''))
  }
}

interface WireMessage {
  readonly data: Uint8Array
  readonly attributes: Readonly<Record<string, string>>
  readonly orderingKey?: string
}

function encode(message: OutgoingMessage, options: PubsubSenderOptions): WireMessage {
  checkSize(message, options.maxBytes)
  const attributes =
    options.attributes === 'plain' ? message.attributes : toCloudEvent(message.attributes, options.cloudEventSource)
  const key = message.orderingKey === undefined ? undefined : fitOrderingKey(message.orderingKey)
  checkAttributes(attributes, message.body.byteLength === 0)
  return key === undefined ? { data: message.body, attributes } : { data: message.body, attributes, orderingKey: key }
}

/** More than the attributes and the key of a message can have together. */
const mostBesideBodyBytes = 200_000

function checkSize(message: OutgoingMessage, maxBytes: number): void {
  if (message.body.byteLength <= maxBytes - mostBesideBodyBytes) return
  const bytes = messageBytes(message)
  if (bytes <= maxBytes) return
  const hint = 'Send a reference to the data instead (claim check).'
  throw new WaybillError('TOO_LARGE', `Pub/Sub takes messages up to ${maxBytes} bytes; this has ${bytes}. ${hint}`)
}

function checkAttributes(attributes: WireMessage['attributes'], isBodyEmpty: boolean): void {
  const entries = Object.entries(attributes)
  if (entries.length > pubsubLimits.attributes)
    throw refused(`it has ${entries.length} attributes; at most ${pubsubLimits.attributes} are taken`)
  for (const [name, value] of entries) {
    if (name === '' || isLonger(name, pubsubLimits.attributeKeyBytes)) {
      throw refused(
        `the name of attribute ${JSON.stringify(name.slice(0, 60))} must have 1 to ${pubsubLimits.attributeKeyBytes} bytes`,
      )
    }
    if (isLonger(value, pubsubLimits.attributeValueBytes)) {
      throw refused(`attribute ${JSON.stringify(name.slice(0, 60))} has more than ${pubsubLimits.attributeValueBytes} bytes`)
    }
  }
  if (entries.length === 0 && isBodyEmpty) throw refused('it has neither data nor attributes')
}

function isLonger(text: string, bytes: number): boolean {
  // Three bytes at most for each UTF-16 unit: short texts need no counting.
  return text.length * 3 > bytes && Buffer.byteLength(text) > bytes
}

function refused(why: string): WaybillError {
  return new WaybillError('REJECTED', `Pub/Sub refuses this message: ${why}.`)
}

function shortAnswer(topic: string, sent: number, confirmed: number): WaybillError {
  return new WaybillError(
    'UNAVAILABLE',
    `Pub/Sub confirmed ${confirmed} of ${sent} messages published to ${topic}; all are taken as unconfirmed.`,
  )
}
