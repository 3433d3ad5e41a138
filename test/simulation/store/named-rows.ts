/** Dispatch rows as statements name them: by lane, number and event together. */
import type { SqlValue } from '../../../src/postgres/query/sql.ts'
import type { Dispatch, OutboxStore } from './outbox-tables.ts'
import { numbers, texts } from './sql-text.ts'
import type { Seen, StatementContext } from './statement-context.ts'

export interface NamedRows {
  readonly lanes: SqlValue | undefined
  readonly seqs: SqlValue | undefined
  readonly events: SqlValue | undefined
}

/** Rows by their whole identity, as the statement sees them. */
export function namedRows(context: StatementContext, data: OutboxStore, named: NamedRows): Seen<Dispatch>[] {
  const [lanes, seqs, events] = [numbers(named.lanes), numbers(named.seqs), texts(named.events)]
  const identities = new Set(lanes.map((lane, i) => `${lane} ${seqs[i]} ${events[i]}`))
  return context.see(data.dispatch, (row) => identities.has(`${row.lane} ${row.seq} ${row.eventId}`))
}

export function bySeq(a: Pick<Dispatch, 'seq'>, b: Pick<Dispatch, 'seq'>): number {
  return a.seq - b.seq
}
