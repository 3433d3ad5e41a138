/**
 * Looks at the tables of consumers, and says what contradicts itself there. It only reads.
 */
import { inboxTables, type InboxTables } from '../../consumer/tables/inbox.sql.ts'
import { selectAtRest, selectReaders, type ReaderRow } from '../../consumer/tables/readers.sql.ts'
import { countsOfRefused } from '../../consumer/failure/refused-messages.ts'
import { one, rows, type Queryable } from '../../postgres/query/database.ts'
import { selectAppliedLetters } from './outbox.sql.ts'
import { selectConsumers } from '../status/status.sql.ts'

export type ConsumerProblem = 'letter-applied' | 'mixed-versions' | 'unread' | 'messages-refused'

export interface ConsumerFinding {
  readonly problem: ConsumerProblem
  readonly text: string
}

const bound = 10_000

/** Everything that is wrong with what consumers keep, and deploys that are half done; empty if nothing is. */
export async function doctorConsumers(db: Queryable, schema: string): Promise<readonly ConsumerFinding[]> {
  const tables = inboxTables(schema)
  return [
    ...(await appliedLetters(db, tables)),
    ...(await mixedVersions(db, tables)),
    ...(await unreadRests(db, tables)),
    ...(await refusedMessages(db, schema)),
  ]
}

async function appliedLetters(db: Queryable, tables: InboxTables): Promise<readonly ConsumerFinding[]> {
  const { count, some } = await one(db, selectAppliedLetters(tables, bound))
  if (count === 0) return []
  const text = `${count} dead letters are of events that have taken effect: they are counted and alerted for nothing. Close them: waybill dlq discard --id ${some} --yes (it discards no letter whose event has taken effect, but closes it as redriven)`
  return [{ problem: 'letter-applied', text }]
}

async function mixedVersions(db: Queryable, tables: InboxTables): Promise<readonly ConsumerFinding[]> {
  const readers = Map.groupBy(await rows(db, selectReaders(tables)), ({ consumer }) => consumer)
  return [...readers].flatMap(([consumer, instances]) => {
    if (new Set(instances.map(({ digest }) => digest)).size < 2) return []
    const text = `Mixed versions: the running instances of consumer ${consumer} read different streams or event types, and what only some of them know is put aside for those. End the deploy, or roll it back. ${instances.map(describe).join('; ')}`
    return [{ problem: 'mixed-versions' as const, text }]
  })
}

function describe({ instance, host, started_at, reads }: ReaderRow): string {
  const streams = Object.entries(JSON.parse(reads) as Record<string, readonly string[]>)
  return `${instance} on ${host} since ${started_at}: ${streams.map(([type, events]) => `${type} (${events.join(', ')})`).join(', ')}`
}

async function unreadRests(db: Queryable, tables: InboxTables): Promise<readonly ConsumerFinding[]> {
  const findings: ConsumerFinding[] = []
  for (const { name: consumer, generation } of await rows(db, selectConsumers(tables))) {
    for (const rest of await rows(db, selectAtRest({ tables, consumer, generation }, bound))) {
      const text = `Consumer ${consumer} has put aside ${rest.messages} events of ${rest.aggregate_type} ${rest.event_type}, and no running instance reads it: start the version that does, and it takes them.`
      findings.push({ problem: 'unread', text })
    }
  }
  return findings
}

async function refusedMessages(db: Queryable, schema: string): Promise<readonly ConsumerFinding[]> {
  const recent = (await countsOfRefused(db, schema)).filter((each) => each.recent > 0)
  return recent.map(({ consumer, reason, recent: count }) => ({
    problem: 'messages-refused',
    text: `Consumer ${consumer} refused messages within a day, ${reason}; ${count} of them are kept: waybill refused --each --consumer ${consumer} --reason ${reason}. Either a writer does not sign as it should, or somebody else publishes.`,
  }))
}
