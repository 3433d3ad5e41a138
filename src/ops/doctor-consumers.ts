/**
 * Looks at the tables of consumers, and says what contradicts itself there. It only reads.
 */
import { inboxTables } from '../consumer/inbox.sql.ts'
import { one, type Queryable } from '../postgres/database.ts'
import { selectAppliedLetters } from './doctor-consumers.sql.ts'

export type ConsumerProblem = 'letter-applied'

export interface ConsumerFinding {
  readonly problem: ConsumerProblem
  readonly text: string
}

const bound = 10_000

/** Everything that is wrong with what consumers keep; empty if nothing is. */
export async function doctorConsumers(db: Queryable, schema: string): Promise<readonly ConsumerFinding[]> {
  const { count, some } = await one(db, selectAppliedLetters(inboxTables(schema), bound))
  if (count === 0) return []
  const text = `${count} dead letters are of events that have taken effect: they are counted and alerted for nothing. Close them: waybill dlq discard --id ${some} --yes (it discards no letter whose event has taken effect, but closes it as redriven)`
  return [{ problem: 'letter-applied', text }]
}
