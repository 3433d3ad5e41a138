/**
 * Tells now and then how many messages a subscription has not settled, as it is told of other brokers.
 *
 * Any number of receivers share a subscription, and each could count all of it: whoever holds its first lane does. A count that fails is
 * left out; what is wrong with the database is told by the fetches.
 */
import type { Clock } from '../../core/service/clock.ts'
import type { SignalBus } from '../../core/signals.ts'
import { one, type Queryable } from '../../postgres/query/database.ts'
import type { ReceiveOptions } from '../port/transport.ts'
import { countUnsettled, type TransportTables } from './transport.sql.ts'

export interface LagReport {
  readonly db: Queryable
  readonly tables: TransportTables
  readonly subscription: number
  readonly options: Pick<ReceiveOptions, 'topic' | 'consumer'>
  readonly lagMs: number
  readonly signals: SignalBus
  readonly clock: Clock
  /** Whether it is for this receiver to count. */
  readonly isOurs: () => boolean
}

/** Counts are exact up to here, and more is told as this many. The alert of deploy/prometheus fires at half of it. */
const lagBound = 200_000

/** Reports until `ended`. */
export async function reportLag(
  { db, tables, subscription, options, lagMs, signals, clock, isOurs }: LagReport,
  ended: AbortSignal,
): Promise<void> {
  const { topic, consumer } = options
  for (;;) {
    await clock.sleep(lagMs, ended)
    if (ended.aborted) return
    if (!isOurs()) continue
    const counted = await one(db, countUnsettled(tables, subscription, lagBound)).catch(() => undefined)
    if (counted === undefined) continue
    signals.emit('transport.lag', { transport: 'postgres', topic, consumer, partition: 'all', messages: counted.messages })
  }
}
