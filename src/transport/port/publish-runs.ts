/**
 * Publishing by runs, for brokers that confirm or refuse a whole request: the part that all such transports share.
 *
 * Messages are grouped by topic and ordering key. A key has one request under way at a time; keys run side by side, and
 * so do the requests of messages without a key. A request that was rejected is halved, left half first, until the culprit
 * stands alone: its neighbours before it go out, it is `rejected`, and those behind it are `not-sent`. Anything else that
 * goes wrong stops the key as `unavailable`, or as `unroutable` if only its topic is to blame.
 */
import type { OutgoingMessage, PublishOptions, PublishOutcome } from './transport.ts'

export interface RunSender {
  /** Sends messages of one topic and key in one request; returns their ids, in order, once the broker confirmed. */
  send(messages: readonly OutgoingMessage[], signal: AbortSignal): Promise<readonly string[]>
  /** Whether the broker refused the request for what is in it, rather than failed to take it. */
  isRejection(error: unknown): boolean
  /** Whether the topic is missing, closed to us or unusable. Left out where every topic is there as soon as it is named. */
  isUnroutable?(error: unknown): boolean
  readonly maxRequestMessages: number
  readonly maxRequestBytes: number
  readonly maxConcurrentRequests: number
}

/** Publishes through `sender`; one outcome per message, in the order given. */
export async function publishRuns(
  sender: RunSender,
  messages: readonly OutgoingMessage[],
  options: PublishOptions,
): Promise<readonly PublishOutcome[]> {
  const outcomes = Array.from({ length: messages.length }, (): PublishOutcome => ({ status: 'not-sent' }))
  const runs = groupRuns(messages).flatMap((run) => spread(sender, messages, run))
  let next = 0
  const worker = async (): Promise<void> => {
    for (let run = runs[next++]; run !== undefined; run = runs[next++]) await publishRun(sender, messages, run, options, outcomes)
  }
  await Promise.all(Array.from({ length: Math.min(sender.maxConcurrentRequests, runs.length) }, worker))
  return outcomes
}

/** The bytes that count against a broker's limits: body, attributes and key. */
export function messageBytes(message: OutgoingMessage): number {
  let bytes = message.body.byteLength + (message.orderingKey === undefined ? 0 : Buffer.byteLength(message.orderingKey))
  for (const [key, value] of Object.entries(message.attributes)) bytes += Buffer.byteLength(key) + Buffer.byteLength(value)
  return bytes
}

/** Messages without a key owe each other no order: each of their requests is a run of its own. */
function spread(sender: RunSender, messages: readonly OutgoingMessage[], run: readonly number[]): readonly (readonly number[])[] {
  return messages[run[0] as number]?.orderingKey === undefined ? cutRequests(sender, messages, run) : [run]
}

/** Indexes of `messages` in the order given, one array per topic and key; those without a key of a topic are together. */
function groupRuns(messages: readonly OutgoingMessage[]): number[][] {
  const runs = new Map<string, number[]>()
  messages.forEach(({ topic, orderingKey }, index) => {
    const id = orderingKey === undefined ? topic : `${topic}\u0000${orderingKey}`
    const run = runs.get(id)
    if (run === undefined) runs.set(id, [index])
    else run.push(index)
  })
  return [...runs.values()]
}

async function publishRun(
  sender: RunSender,
  messages: readonly OutgoingMessage[],
  run: readonly number[],
  options: PublishOptions,
  outcomes: PublishOutcome[],
): Promise<void> {
  const requests = cutRequests(sender, messages, run)
  for (let request = requests.shift(); request !== undefined; request = requests.shift()) {
    if (options.signal.aborted || !options.maySend()) return
    try {
      const ids = await sender.send(
        request.map((index) => messages[index] as OutgoingMessage),
        options.signal,
      )
      request.forEach((index, i) => (outcomes[index] = { status: 'confirmed', messageId: ids[i] ?? '' }))
    } catch (cause) {
      const error = cause instanceof Error ? cause : new Error(String(cause))
      if (!sender.isRejection(cause)) {
        const status = sender.isUnroutable?.(cause) === true ? 'unroutable' : 'unavailable'
        for (const index of request) outcomes[index] = { status, error }
        return
      }
      if (request.length > 1) {
        const middle = Math.ceil(request.length / 2)
        requests.unshift(request.slice(0, middle), request.slice(middle))
        continue
      }
      outcomes[request[0] as number] = { status: 'rejected', error }
      // Behind a refused message its key stops; messages without a key have nobody behind them.
      if (messages[request[0] as number]?.orderingKey !== undefined) return
    }
  }
}

function cutRequests(sender: RunSender, messages: readonly OutgoingMessage[], run: readonly number[]): number[][] {
  const requests: number[][] = []
  let current: number[] = []
  let bytes = 0
  for (const index of run) {
    const size = messageBytes(messages[index] as OutgoingMessage)
    if (current.length > 0 && (current.length >= sender.maxRequestMessages || bytes + size > sender.maxRequestBytes)) {
      requests.push(current)
      current = []
      bytes = 0
    }
    current.push(index)
    bytes += size
  }
  if (current.length > 0) requests.push(current)
  return requests
}
