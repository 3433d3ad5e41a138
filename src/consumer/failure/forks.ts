/**
 * Forks: events of one aggregate and version under two ids. An owner whose fail-over lost commits gives their versions again; what
 * was published before stays applied, and what comes under its version looks like a repeat.
 *
 * A position alone proves nothing: an event at or below it may have been overtaken, given up or moved over. So each position has
 * the versions that are known to be taken by ids that the inbox got (see `isTakenAlready`), and an event of one of those that
 * is new to the inbox is a fork, unless the inbox may have forgotten it.
 *
 * It is remembered as seen, so that it is told of once. It takes its turn as it would have before: a delta has no effect, a handler of
 * states is called, a row has the version already. With `onFork: 'dead-letter'` it is a letter that holds its aggregate.
 */
import { first, type Tx } from '../../postgres/query/database.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import { selectMemory } from '../tables/retention.sql.ts'
import { Forked, ItemFailure, type Item } from '../model/batch-item.ts'

/** An owner's clock may be ahead of the one that says when the inbox got an event. */
const clockLeadMs = 3_600_000

/** Those of which it is certain. Throws ItemFailure for the first of them if that is to be a dead letter. */
export async function settleForks(
  tx: Tx,
  { scope, settings }: { readonly scope: Scope; readonly settings: ConsumerSettings },
  found: readonly Item[],
): Promise<readonly Item[]> {
  if (found.length === 0 || !settings.inbox) return []
  const memory = await first(tx, selectMemory(scope.tables, scope.consumer))
  const forgottenMs = memory?.forgotten_before_ms
  const isRemembered = ({ event, message }: Item): boolean =>
    typeof forgottenMs !== 'string' || Math.min(event.occurredAtMs, message.publishedAtMs) >= Number(forgottenMs) + clockLeadMs
  const forks = found.filter(isRemembered)
  const [fork] = forks
  if (fork !== undefined && settings.onFork === 'dead-letter') {
    const { version, aggregateType, aggregateId } = fork.event
    throw new ItemFailure(
      fork,
      new Forked(
        `Version ${version} of ${aggregateType} ${aggregateId} was taken by another event: its owner gave the version twice, as after a fail-over that lost commits. Compare both services, then redrive this event to apply it as well, or discard it.`,
      ),
    )
  }
  return forks
}
