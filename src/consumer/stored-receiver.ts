/**
 * The thin receiver of stored mode: writes what came into inbox_message, in one statement a batch, and acknowledges it after
 * the commit. It decodes nothing, so that a message nobody can read is stored like any other.
 */
import { execute } from '../postgres/database.ts'
import { ackAll } from '../transport/ack-all.ts'
import type { Delivery } from '../transport/transport.ts'
import type { ConsumerSettings } from './consumer-options.ts'
import type { Scope } from './inbox.sql.ts'
import { isForeign, type ForeignMessage, type ReceivedEvent } from './received-event.ts'
import { storeReceived } from './stored.sql.ts'

export interface ReceivedDelivery {
  readonly event: ReceivedEvent | ForeignMessage
  readonly delivery: Delivery
}

/** Stores and acknowledges a batch; given back whole if that fails. Never rejects. */
export async function storeBatch(
  { settings, scope }: { readonly settings: ConsumerSettings; readonly scope: Scope },
  batch: readonly ReceivedDelivery[],
): Promise<void> {
  const { db, signals, backoff, name } = settings
  try {
    const messages = batch.flatMap(({ event, delivery }) => (isForeign(event) ? [] : [{ event, message: delivery.message }]))
    await execute(db, storeReceived(scope, messages))
  } catch (error) {
    for (const { delivery } of batch) void delivery.nack(backoff.firstMs)
    return signals.emit('consumer.disturbed', { consumer: name, topic: batch[0]?.delivery.message.topic ?? '', error })
  }
  const outcomes = await ackAll(batch.map(({ delivery }) => delivery))
  const count = outcomes.filter((outcome) => outcome !== 'confirmed').length
  if (count > 0) signals.emit('consumer.ack-unconfirmed', { consumer: name, count })
}
