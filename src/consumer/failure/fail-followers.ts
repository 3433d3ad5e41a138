/**
 * Ends the redrive of what is behind a letter that died again.
 *
 *   version 1, redriving ──fails──▶ dead, holds its aggregate
 *   version 2, redriving ─────────▶ dead, untried
 *
 * A redriven letter passes a hold, so that an operator who leaves the older one out can settle a later one first. Redriven
 * together they come in order: left as it is, the later one would be found alone by the next look, and applied. Wherever it is,
 * in the batch of the one that failed, beyond it or at rest, it is decided with that one, in its transaction. What takes its
 * turn, as a delta does, is stored behind the gap instead. Where dead letters are passed over (`onDead: 'pass'`) everything goes
 * on, and so does what has no ordering key.
 */
import type { Signals } from '../../core/signals.ts'
import { rows, type Tx } from '../../postgres/query/database.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import { markFollowersFailed } from '../tables/dead-letter.sql.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import type { UnreadItem } from '../model/batch-item.ts'

/** Returns what is to be told of each; nothing, if the item is no letter. */
export async function failFollowers(
  tx: Tx,
  { settings, scope }: { readonly settings: Pick<ConsumerSettings, 'onDead'>; readonly scope: Scope },
  item: UnreadItem,
): Promise<readonly Omit<Signals['consumer.dead'], 'consumer'>[]> {
  if (item.origin.kind !== 'dead' || settings.onDead !== 'hold') return []
  const { aggregateType, aggregateId, version } = item.event
  const error = `Version ${version} of its aggregate failed again before it; this one was not tried.`
  const followers = await rows(tx, markFollowersFailed(scope, item, error))
  return followers.map((row) => ({
    eventId: row.event_id,
    messageId: row.message_id,
    orderingKey: row.ordering_key ?? undefined,
    eventType: row.event_type,
    aggregateType,
    aggregateId,
    reason: row.reason,
    attempts: 0,
    held: true,
    error,
  }))
}
