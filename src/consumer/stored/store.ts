/**
 * The thin receiver of stored mode: writes what came into inbox_message, in one statement a batch, and acknowledges it after
 * the commit. It decodes nothing, so that a message nobody can read is stored like any other.
 *
 *   batch ──stored──▶ ack
 *     ├ outage: the same again after a while, in hand: a broker may count what is given back, and give it up
 *     ├ statement time-out: halves, as it may have been too much; from the second that runs out of time alone it is an outage
 *     ├ the process stops: what did not go at the first try is given back
 *     └ any other error: halves, until what cannot be stored is given back alone, and what is behind it in line with it
 *
 * The delays grow while the trouble lasts.
 */
import { redactedMessage } from '../../core/redact.ts'
import { execute } from '../../postgres/query/database.ts'
import { isStatementTimeout } from '../../postgres/query/sql-state.ts'
import type { Delivery } from '../../transport/port/transport.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import type { Item } from '../model/batch-item.ts'
import { isOutage } from '../failure/retry-outages.ts'
import { createOutageBackoff, longestPauseMs } from '../failure/outage-backoff.ts'
import { confirmDeliveries } from '../failure/settle.ts'
import type { BatchEvents } from '../model/observer.ts'
import { isForeign, type ForeignMessage, type ReceivedEvent } from '../model/received-event.ts'
import { storeReceived } from '../tables/stored.sql.ts'

export interface ReceivedDelivery {
  readonly key: string
  readonly event: ReceivedEvent | ForeignMessage
  readonly delivery: Delivery
}

export interface StoredReceiverDeps {
  readonly settings: ConsumerSettings
  readonly scope: Scope
  /** The later ones of this aggregate are given back by the broker as well. */
  readonly returnLine: (item: Pick<Item, 'key' | 'message' | 'origin'>, restMs: number) => void
  /** An ack that a log confirms in order may have to wait for one that was given back. */
  readonly events: Pick<BatchEvents, 'acking'>
  readonly stopping: AbortSignal
  readonly aborting: AbortSignal
}

/** One batch, while it is stored in parts. */
interface Round {
  /** The lines in which one was given back. */
  readonly broken: Set<string>
  /** How many ran out of time alone. */
  slow: number
  /** Why the rest is given back as it is. */
  end: { readonly error: unknown } | undefined
}

/** Makes the function that stores and acknowledges a batch, as much of it as can be. It never rejects. */
export function createStoredReceiver(deps: StoredReceiverDeps): (batch: readonly ReceivedDelivery[]) => Promise<void> {
  const { settings, scope, returnLine, events, stopping, aborting } = deps
  const { signals, name } = settings
  const backoff = createOutageBackoff(settings, longestPauseMs)

  const giveBack = (part: readonly ReceivedDelivery[], error: unknown): void => {
    const delayMs = backoff()
    for (const { key, delivery } of part) {
      void delivery.nack(delayMs)
      returnLine({ key, message: delivery.message, origin: { kind: 'delivery', delivery } }, delayMs)
    }
    signals.emit('consumer.disturbed', { consumer: name, topic: part[0]?.delivery.message.topic ?? '', error })
  }
  const insert = async (part: readonly ReceivedDelivery[], round: Round): Promise<void> => {
    const messages = part.flatMap(({ event, delivery }) => (isForeign(event) ? [] : [{ event, message: delivery.message }]))
    for (;;) {
      try {
        await execute(settings.db, storeReceived(scope, messages))
        return
      } catch (error) {
        if (stopping.aborted || !isPassing(error, part.length, round)) throw error
        const delayMs = backoff()
        signals.emit('consumer.retried', { consumer: name, count: part.length, delayMs, error: redactedMessage(error) })
        await settings.clock.sleep(delayMs, stopping)
      }
    }
  }
  const store = async (part: readonly ReceivedDelivery[], round: Round): Promise<void> => {
    const isBehind = ({ key, delivery }: ReceivedDelivery): boolean =>
      round.broken.has(key) && delivery.message.orderingKey !== undefined
    const open = part.filter((each) => !isBehind(each))
    for (const each of part) if (isBehind(each)) void each.delivery.nack()
    if (open.length === 0) return
    if (aborting.aborted) round.end ??= { error: new Error('The process is stopping.') }
    if (round.end !== undefined) return giveBack(open, round.end.error)
    try {
      await insert(open, round)
    } catch (error) {
      if (stopping.aborted) round.end = { error }
      else if (open.length > 1) {
        const middle = Math.ceil(open.length / 2)
        for (const half of [open.slice(0, middle), open.slice(middle)]) await store(half, round)
        return
      }
      giveBack(open, error)
      for (const { key } of open) round.broken.add(key)
      return
    }
    const deliveries = open.map(({ delivery }) => delivery)
    events.acking(confirmDeliveries(settings, deliveries))
  }
  return async (batch) => await store(batch, { broken: new Set(), slow: 0, end: undefined })
}

/** Whether it says nothing about what was to be stored. One that runs out of time alone may be to blame, two are not. */
function isPassing(error: unknown, count: number, round: Round): boolean {
  if (!isStatementTimeout(error)) return isOutage(error)
  if (count > 1) return false
  round.slow += 1
  return round.slow > 1
}
