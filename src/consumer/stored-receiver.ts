/**
 * The thin receiver of stored mode: writes what came into inbox_message, in one statement a batch, and acknowledges it after
 * the commit. It decodes nothing, so that a message nobody can read is stored like any other.
 *
 *   batch ──stored──▶ ack
 *     ├ outage: all of it is given back
 *     └ any other error: halves, until what cannot be stored is given back alone, and what is behind it in line with it
 *
 * What is given back comes again after a delay that grows while the trouble lasts.
 */
import { execute } from '../postgres/database.ts'
import { isStatementTimeout } from '../postgres/sql-state.ts'
import { ackAll } from '../transport/ack-all.ts'
import type { Delivery } from '../transport/transport.ts'
import type { ConsumerSettings } from './consumer-options.ts'
import type { Scope } from './inbox.sql.ts'
import type { Item } from './item.ts'
import { isOutage } from './outage.ts'
import { createPatience, longestPauseMs } from './patience.ts'
import { isForeign, type ForeignMessage, type ReceivedEvent } from './received-event.ts'
import { storeReceived } from './stored.sql.ts'

export interface ReceivedDelivery {
  readonly key: string
  readonly event: ReceivedEvent | ForeignMessage
  readonly delivery: Delivery
}

export interface StoredReceiverDeps {
  readonly settings: ConsumerSettings
  readonly scope: Scope
  /** The later ones of this aggregate are given back by the broker as well. */
  readonly onGivenBack: (item: Pick<Item, 'key' | 'message' | 'origin'>) => void
  /** Takes over an ack under way: one that a log confirms in order may have to wait for one that was given back. */
  readonly onAcking: (acked: Promise<void>) => void
}

/** Makes the function that stores and acknowledges a batch, as much of it as can be. It never rejects. */
export function createStoredReceiver(deps: StoredReceiverDeps): (batch: readonly ReceivedDelivery[]) => Promise<void> {
  const { settings, scope, onGivenBack, onAcking } = deps
  const { db, signals, name } = settings
  const patience = createPatience(settings, longestPauseMs)

  const giveBack = (part: readonly ReceivedDelivery[], error: unknown): void => {
    const delayMs = patience()
    for (const { key, delivery } of part) {
      void delivery.nack(delayMs)
      onGivenBack({ key, message: delivery.message, origin: { kind: 'delivery', delivery } })
    }
    signals.emit('consumer.disturbed', { consumer: name, topic: part[0]?.delivery.message.topic ?? '', error })
  }
  /** Returns the lines in which one was given back. */
  const store = async (part: readonly ReceivedDelivery[], broken: ReadonlySet<string>): Promise<ReadonlySet<string>> => {
    const isBehind = ({ key, delivery }: ReceivedDelivery): boolean =>
      broken.has(key) && delivery.message.orderingKey !== undefined
    for (const each of part) if (isBehind(each)) void each.delivery.nack()
    const open = part.filter((each) => !isBehind(each))
    if (open.length === 0) return broken
    try {
      const messages = open.flatMap(({ event, delivery }) => (isForeign(event) ? [] : [{ event, message: delivery.message }]))
      await execute(db, storeReceived(scope, messages))
    } catch (error) {
      const middle = Math.ceil(open.length / 2)
      if (open.length > 1 && (!isOutage(error) || isStatementTimeout(error)))
        return await store(open.slice(middle), await store(open.slice(0, middle), broken))
      giveBack(open, error)
      return new Set([...broken, ...open.map(({ key }) => key)])
    }
    onAcking(acknowledge(settings, open))
    return broken
  }
  return async (batch) => void (await store(batch, new Set()))
}

async function acknowledge({ signals, name }: ConsumerSettings, stored: readonly ReceivedDelivery[]): Promise<void> {
  const outcomes = await ackAll(stored.map(({ delivery }) => delivery))
  const count = outcomes.filter((outcome) => outcome !== 'confirmed').length
  if (count > 0) signals.emit('consumer.ack-unconfirmed', { consumer: name, count })
}
