/**
 * What becomes of a message that is not believed: it is counted and signalled, and perhaps kept as a sample. Nothing waits for that,
 * and nothing fails by it: a flood of forged messages writes a few rows, and a database that is away keeps none of them.
 */
import { refuseUnknown, wholeBetween } from '../../core/options.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Distrust } from '../../core/event/signing.ts'
import { execute, rows, type Queryable } from '../../postgres/query/database.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import { inboxTables } from '../tables/inbox.sql.ts'
import { readEvent, type RawMessage } from '../model/received-event.ts'
import { countRefused, keepRefused, selectRefused, slotsPerReason } from '../tables/refused.sql.ts'

export interface Refusals {
  /** Never throws. */
  refuse(message: RawMessage, reason: Distrust): void
  /** Resolves when nothing is being written. */
  ended(): Promise<void>
}

type RefusalSettings = Pick<ConsumerSettings, 'db' | 'schema' | 'name' | 'signals' | 'clock'>

/** Full slots are looked at again this late. */
const restMs = 60_000

export function createRefusals({ db, schema, name, signals, clock }: RefusalSettings): Refusals {
  const tables = inboxTables(schema)
  const waiting = new Map<Distrust, RawMessage[]>()
  const restsUntil = new Map<Distrust, number>()
  let writing: Promise<void> | undefined

  const keep = async (reason: Distrust, messages: readonly RawMessage[]): Promise<void> => {
    try {
      const kept = await execute(db, keepRefused(tables, { consumer: name, reason, messages }))
      if (kept < messages.length) restsUntil.set(reason, clock.monotonicMs() + restMs)
    } catch (error) {
      restsUntil.set(reason, clock.monotonicMs() + restMs)
      signals.emit('consumer.disturbed', { consumer: name, topic: messages[0]?.topic ?? '', error })
    }
  }
  const write = async (): Promise<void> => {
    // What comes in this moment is written together.
    await Promise.resolve()
    for (const [reason] of waiting) {
      const messages = waiting.get(reason) ?? []
      waiting.delete(reason)
      await keep(reason, messages)
    }
    writing = waiting.size > 0 ? write() : undefined
  }
  return {
    refuse: (message, reason) => {
      const { id: eventId, type: eventType } = readEvent(message)
      const { messageId, topic } = message
      signals.emit('consumer.refused', { consumer: name, topic, reason, messageId, eventId, eventType })
      const line = waiting.get(reason) ?? []
      if (line.length >= slotsPerReason || clock.monotonicMs() < (restsUntil.get(reason) ?? 0)) return
      waiting.set(reason, line)
      line.push(message)
      writing ??= write()
    },
    ended: async () => {
      while (writing !== undefined) await writing
    },
  }
}

export interface RefusedOptions {
  readonly db: Queryable
  readonly schema: string
  /** Those of this consumer. @default all */
  readonly consumer?: string | undefined
  /** Those that were refused for this reason. @default all */
  readonly reason?: Distrust | undefined
  /** At most so many, the newest. @default 100 */
  readonly limit?: number | undefined
}

export interface RefusedMessage {
  readonly consumer: string
  readonly reason: Distrust
  readonly topic: string
  readonly messageId: string
  readonly attributes: Readonly<Record<string, string>>
  /** The beginning of it. */
  readonly body: Uint8Array
  readonly bodyBytes: number
  readonly refusedAt: string
}

/** The sample of messages that consumers refused, newest first. */
export async function listRefused(options: RefusedOptions): Promise<readonly RefusedMessage[]> {
  refuseUnknown('listRefused', options, ['db', 'schema', 'consumer', 'reason', 'limit'])
  const { db, schema, consumer, reason, limit = 100 } = options
  const verdict = wholeBetween(1, 100_000)(limit)
  if (verdict !== true) throw new WaybillError('INVALID_OPTION', `listRefused.limit: ${verdict}, got ${String(limit)}.`)
  const found = await rows(db, selectRefused(inboxTables(schema), { consumer, reason, limit }))
  return found.map((row) => ({
    consumer: row.consumer,
    reason: row.reason,
    topic: row.topic,
    messageId: row.message_id,
    attributes: JSON.parse(row.attributes) as Record<string, string>,
    body: row.body,
    bodyBytes: Number(row.body_bytes),
    refusedAt: row.refused_at,
  }))
}

export interface RefusedCount {
  readonly consumer: string
  readonly reason: Distrust
  /** How many are kept: 100 at most. */
  readonly count: number
  /** Those of the last day among them. */
  readonly recent: number
  readonly newestAt: string
}

/** How many are kept, by consumer and reason. */
export async function countsOfRefused(db: Queryable, schema: string): Promise<readonly RefusedCount[]> {
  const found = await rows(db, countRefused(inboxTables(schema)))
  return found.map(({ newest_at: newestAt, ...row }) => ({ ...row, newestAt }))
}
