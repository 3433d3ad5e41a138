/**
 * Looks at the tables of consumers, and says what contradicts itself there. It only reads.
 */
import { inboxTables } from '../consumer/inbox.sql.ts'
import { countsOfRefused } from '../consumer/refused-messages.ts'
import { one, type Queryable } from '../postgres/database.ts'
import { selectAppliedLetters } from './doctor-consumers.sql.ts'

export type ConsumerProblem = 'letter-applied' | 'messages-refused'

export interface ConsumerFinding {
  readonly problem: ConsumerProblem
  readonly text: string
}

const bound = 10_000

/** Everything that is wrong with what consumers keep; empty if nothing is. */
export async function doctorConsumers(db: Queryable, schema: string): Promise<readonly ConsumerFinding[]> {
  return [...(await appliedLetters(db, schema)), ...(await refusedMessages(db, schema))]
}

async function appliedLetters(db: Queryable, schema: string): Promise<readonly ConsumerFinding[]> {
  const { count, some } = await one(db, selectAppliedLetters(inboxTables(schema), bound))
  if (count === 0) return []
  const text = `${count} dead letters are of events that have taken effect: they are counted and alerted for nothing. Close them: waybill dlq discard --id ${some} --yes (it discards no letter whose event has taken effect, but closes it as redriven)`
  return [{ problem: 'letter-applied', text }]
}

async function refusedMessages(db: Queryable, schema: string): Promise<readonly ConsumerFinding[]> {
  const recent = (await countsOfRefused(db, schema)).filter((each) => each.recent > 0)
  return recent.map(({ consumer, reason, recent: count }) => ({
    problem: 'messages-refused',
    text: `Consumer ${consumer} refused messages within a day, ${reason}; ${count} of them are kept: waybill refused --each --consumer ${consumer} --reason ${reason}. Either a writer does not sign as it should, or somebody else publishes.`,
  }))
}
