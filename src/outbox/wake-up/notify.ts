/**
 * Tells relays in other processes that something was committed, by NOTIFY from a connection of its own.
 *
 * The first commit is announced at once; those that follow within a few milliseconds share the next announcement. It is
 * never part of the business transaction, and nothing depends on it: a relay that hears nothing finds the events by polling. So
 * one that is not answered, because its connection is dead, is given up soon; whether it arrives does not matter.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { resolve, wholeBetween } from '../../core/options.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import { rows, type Queryable } from '../../postgres/query/database.ts'
import { withDeadlines } from '../../postgres/transaction/deadline.ts'
import { GatheredHints, type LaneHint, writeHint } from './lane-hints.ts'
import { notifyChannel, type OutboxTables } from '../tables/outbox.sql.ts'

/** The part of an outbox that is asked for commits. */
export interface NotifiedOutbox {
  readonly tables: OutboxTables
  onCommitted(listener: (hint: LaneHint) => void): () => void
}

export interface NotifyOptions {
  /** Announcements run here, beside the business transactions. */
  readonly db: Queryable
  readonly outbox: NotifiedOutbox
  /** At most one announcement in this time. @default 5 */
  readonly intervalMs?: number
  readonly signals?: SignalBus
  readonly clock?: Clock
}

export interface Notifying {
  /** Announces a commit that `transaction()` did not run: one of an ORM's own transactions, of plain SQL. */
  announce(): void
  /** Ends it; resolves when what is under way is done. */
  stop(): Promise<void>
}

/** How long an announcement is waited for. */
const answerMs = 10_000

/** The channel of an outbox, for LISTEN. */
export function outboxChannel(outbox: Pick<NotifiedOutbox, 'tables'>): string {
  return `${outbox.tables.schema}_outbox`
}

/** Announces every commit of `transaction()` that adds events, from now on. */
export function notifyAfterCommit(options: NotifyOptions): Notifying {
  const { db, outbox, intervalMs, signals, clock } = resolve<Required<NotifyOptions>>(
    'notify',
    { db: options.db, outbox: options.outbox, intervalMs: 5, signals: defaultSignals, clock: systemClock },
    options,
    { intervalMs: wholeBetween(0, 60_000) },
  )
  const heard = withDeadlines(db, { statementMs: answerMs, clock })
  const channel = outboxChannel(outbox)
  const ended = new AbortController()
  const hints = new GatheredHints()
  let isNews = false
  let announcing: Promise<void> | undefined
  const send = async (): Promise<void> => {
    while (isNews) {
      isNews = false
      try {
        await rows(heard, notifyChannel(channel, writeHint(hints.take())))
      } catch (error) {
        signals.emit('outbox.notify-failed', { channel, error })
      }
      await clock.sleep(intervalMs, ended.signal)
    }
    announcing = undefined
  }
  const announce = (hint: LaneHint): void => {
    if (ended.signal.aborted) return
    hints.add(hint)
    isNews = true
    announcing ??= send()
  }
  const unsubscribe = outbox.onCommitted(announce)
  return {
    announce: () => announce(undefined),
    stop: async () => {
      unsubscribe()
      ended.abort()
      await announcing
    },
  }
}
