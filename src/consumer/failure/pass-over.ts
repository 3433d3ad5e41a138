/**
 * Lets an aggregate go on without an event that was given up.
 *
 * Usually it was the event's turn, and the position moves over it. If versions before it are missing, they may still come:
 * an empty message takes its place in line, and is passed when its turn comes. A state has its turn before versions that are
 * missing, and nobody waits for them because of it: the position moves over it, unless some of them are in the table. Those
 * that come later count as covered by it, as they would if it had been applied.
 */
import { businessKeyId } from '../../core/event/id.ts'
import { execute, one, rows, type Tx } from '../../postgres/query/database.ts'
import { moveOverEvent, moveOverGap } from '../tables/dead-letter.sql.ts'
import { storeWaiting, type Scope } from '../tables/inbox.sql.ts'
import type { Item } from '../model/batch-item.ts'
import { voidEventType } from '../../core/event/event.ts'

export interface PassedOver extends Pick<Item, 'event' | 'message'> {
  /** Versions of its aggregate are taken one after the other, or nobody knows. */
  readonly sequential: boolean
  /** It stands for everything before it. */
  readonly closesGap: boolean
}

export async function passOver(tx: Tx, scope: Scope, passed: PassedOver): Promise<void> {
  const { passed: wasNext } = await one(tx, moveOverEvent(scope, passed))
  const isPast = wasNext || (passed.closesGap && (await rows(tx, moveOverGap(scope, passed))).length > 0)
  if (!isPast) await execute(tx, storeWaiting(scope, [voidOf(passed)]))
}

/** Always the same for one event, so that it is in line once however often the event is given up. */
function voidOf({ event, message }: PassedOver): Pick<Item, 'event' | 'message'> {
  const id = businessKeyId(voidEventType, event.id)
  const attributes = { ...message.attributes, event_id: id, event_type: voidEventType }
  return { event: { ...event, id, type: voidEventType }, message: { ...message, attributes, body: new Uint8Array() } }
}
