/**
 * Publishing into Postgres: one statement stores many messages of a topic, whatever their keys.
 *
 * A statement is all or nothing and statements of a topic follow each other, so order per key is the order given. What
 * Postgres would refuse (too large, or text that it cannot store) is found before anything is sent; should it refuse a
 * statement all the same, that part is published key by key until the culprit stands alone. A topic that somebody else has
 * alone is waited for only for a moment: then it is unroutable, and costs the others nothing.
 */
import { WaybillError } from '../../core/errors.ts'
import { rows, type Queryable } from '../../postgres/query/database.ts'
import { isLockTimeout, isRefusedValue } from '../../postgres/query/sql-state.ts'
import { messageBytes, publishRuns, type RunSender } from '../port/publish-runs.ts'
import type { OutgoingMessage, PublishOptions, PublishOutcome } from '../port/transport.ts'
import { publishMessages, type TransportTables } from './transport.sql.ts'

export interface PublishingDeps {
  readonly db: Queryable
  readonly tables: TransportTables
  readonly maxBytes: number
}

const statementMessages = 1_000
const statementBytes = 4_000_000

/** Publishes; one outcome per message, in the order given. */
export async function publishToPostgres(
  deps: PublishingDeps,
  messages: readonly OutgoingMessage[],
  options: PublishOptions,
): Promise<readonly PublishOutcome[]> {
  const outcomes = messages.map((): PublishOutcome => ({ status: 'not-sent' }))
  const topics = new Map<string, number[]>()
  const stopped = new Set<string>()
  messages.forEach((message, index) => {
    const key = message.orderingKey === undefined ? undefined : `${message.topic}\u0000${message.orderingKey}`
    if (key !== undefined && stopped.has(key)) return
    const error = refusal(message, deps.maxBytes)
    if (error === undefined) {
      const listed = topics.get(message.topic)
      if (listed === undefined) topics.set(message.topic, [index])
      else listed.push(index)
      return
    }
    outcomes[index] = { status: 'rejected', error }
    if (key !== undefined) stopped.add(key)
  })
  await Promise.all([...topics.values()].map((indexes) => publishTopic(deps, { messages, indexes, options, outcomes })))
  return outcomes
}

interface TopicBatch {
  readonly messages: readonly OutgoingMessage[]
  readonly indexes: readonly number[]
  readonly options: PublishOptions
  readonly outcomes: PublishOutcome[]
}

/** Statement after statement; one that failed ends the topic, for it holds messages of many keys. */
async function publishTopic(deps: PublishingDeps, { messages, indexes, options, outcomes }: TopicBatch): Promise<void> {
  for (const part of cut(indexes, messages)) {
    if (options.signal.aborted || !options.maySend()) return
    const given = part.map((index) => messages[index] as OutgoingMessage)
    const results = await publishPart(deps, given, options)
    part.forEach((index, i) => (outcomes[index] = results[i] as PublishOutcome))
    if (results.some(({ status }) => status !== 'confirmed')) return
  }
}

async function publishPart(
  deps: PublishingDeps,
  messages: readonly OutgoingMessage[],
  options: PublishOptions,
): Promise<readonly PublishOutcome[]> {
  const sender = senderOf(deps)
  try {
    const ids = await sender.send(messages, options.signal)
    return ids.map((messageId) => ({ status: 'confirmed', messageId }))
  } catch (cause) {
    if (sender.isRejection(cause)) return await publishRuns(sender, messages, options)
    const error = cause instanceof Error ? cause : new Error(String(cause))
    const status = isLockTimeout(cause) ? 'unroutable' : 'unavailable'
    return messages.map(() => ({ status, error }))
  }
}

function senderOf({ db, tables }: PublishingDeps): RunSender {
  return {
    maxRequestMessages: statementMessages,
    maxRequestBytes: statementBytes,
    maxConcurrentRequests: 1,
    isRejection: isRefusedValue,
    isUnroutable: isLockTimeout,
    send: async (messages, signal) => {
      const topic = messages[0]?.topic ?? ''
      const storing = rows(db, publishMessages(tables, topic, messages)).catch((cause: unknown) => {
        throw isLockTimeout(cause) ? lockedError(topic, cause) : cause
      })
      return (await unlessAborted(storing, signal)).map(({ seq }) => seq)
    },
  }
}

function cut(indexes: readonly number[], messages: readonly OutgoingMessage[]): readonly number[][] {
  const parts: number[][] = []
  let bytes = Infinity
  for (const index of indexes) {
    const size = messageBytes(messages[index] as OutgoingMessage)
    const current = parts.at(-1)
    if (current === undefined || current.length >= statementMessages || bytes + size > statementBytes) {
      parts.push([index])
      bytes = size
    } else {
      current.push(index)
      bytes += size
    }
  }
  return parts
}

function refusal(message: OutgoingMessage, maxBytes: number): WaybillError | undefined {
  const bytes = messageBytes(message)
  if (bytes > maxBytes)
    return new WaybillError('REJECTED', `postgres: the message has ${bytes} bytes, more than the ${maxBytes} allowed.`)
  const texts = [message.orderingKey ?? '', ...Object.entries(message.attributes).flat()]
  if (texts.every((text) => text.isWellFormed() && !text.includes('\u0000'))) return undefined
  return new WaybillError(
    'REJECTED',
    'postgres: its key or an attribute has a zero character or half a surrogate pair, which Postgres cannot store.',
  )
}

function lockedError(topic: string, cause: unknown): WaybillError {
  return new WaybillError(
    'UNAVAILABLE',
    `postgres: topic ${topic} is locked: somebody makes or moves a subscription of it, or changes its tables. It takes messages when that is done.`,
    { cause },
  )
}

/** A statement cannot be called back: what it did is unknown to whoever stopped waiting. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = (): void => undefined
  const aborted = new Promise<never>((_, fail) => {
    stop = () => fail(new WaybillError('ABORTED', 'postgres: the publish was given up before the database answered.'))
    signal.addEventListener('abort', stop, { once: true })
  })
  try {
    return await Promise.race([work, aborted])
  } finally {
    signal.removeEventListener('abort', stop)
    work.catch(() => undefined)
  }
}
