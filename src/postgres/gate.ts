/**
 * Whether a transaction takes statements. All ways to it ask the same gate: ours, the driver's and the ORM's.
 *
 *   open ──closure ends──▶ ending ──library is done──▶ over
 *
 * Nothing that the closure still has under way may run behind its end: behind a ROLLBACK it would commit by itself, or in the
 * transaction of whoever has the connection next. While the transaction is ending, its library still sends what ends it.
 */
import { WaybillError } from '../core/errors.ts'
import { sql, type Statement } from './sql.ts'

export interface Gate {
  state: 'open' | 'ending' | 'over'
  /** Operations of several statements that were let through as a whole. */
  readonly underWay: Set<Promise<unknown>>
  /** Transactions inside this one that the library began and has not ended, where it minds. */
  nested: number
  /** Shuts the gate and asks the last question. There when the closure has returned and the library still runs its hooks. */
  beforeCommit?: () => Promise<void>
}

export function openGate(): Gate {
  return { state: 'open', underWay: new Set(), nested: 0 }
}

/** The closure has ended: nothing more is let through, and what was let through comes to its end. */
export async function shut(gate: Gate): Promise<void> {
  if (gate.state === 'open') gate.state = 'ending'
  if (gate.underWay.size > 0) await Promise.allSettled(gate.underWay)
}

/** Whether a statement of this text may be sent now. */
export function letsThrough({ state }: Gate, text: unknown): boolean {
  return state === 'open' || (state === 'ending' && (text === lastQuestion || isEnd(text)))
}

/** What libraries send to end a transaction. */
export function isEnd(text: unknown): boolean {
  return typeof text === 'string' && /^(?:commit|rollback);?$/i.test(text)
}

/** The sentence for a statement that comes after the end. */
export function endedTransaction(): WaybillError {
  return new WaybillError(
    'NOT_A_TRANSACTION',
    'This transaction has ended; the statement was not run. Is an await missing inside the closure?',
  )
}

/** The sentence for a closure that returned too early, in a library that then does not commit. */
export function nestedUnderWay(): WaybillError {
  return new WaybillError(
    'NOT_A_TRANSACTION',
    'The closure returned while a transaction nested in it was still under way, so everything was rolled back. Is an await missing inside the closure?',
  )
}

/** Which transaction the connection is in, and what it may do: the last thing that is asked before COMMIT. */
export function currentTransaction(): Statement<{ xid: string | null; read_only: string }> {
  return sql`select pg_current_xact_id_if_assigned()::text as xid, current_setting('transaction_read_only') as read_only`
}

const lastQuestion = currentTransaction().text
