/** The history of a cell: what clients asked and were told, what the broker stored, and what the database holds at the end. */
import type { Database } from '../../src/postgres/query/database.ts'
import { aggregateName, type HistoryEntry } from '../../src/testing/history/entry.ts'
import type { History } from '../../src/testing/history/history.ts'
import { readHistory } from '../../src/testing/history/read-history.ts'
import type { CellBroker } from './broker.ts'
import type { Crew } from './crew.ts'
import { accounts, balances } from './ledger.ts'

export interface JudgedWorld {
  readonly db: Database
  readonly broker: CellBroker
  readonly crew: Crew
  readonly history: History
}

/**
 * The deposits of each account, as either side has them. Whoever looks at the outbox alone overlooks a deposit without its
 * event, and an event without its deposit.
 */
const deposits = (table: string): string =>
  `select account as id, count(*) || ' deposits of ' || sum(amount) as value from ${table} group by account`

export async function judge({ db, broker, crew, history }: JudgedWorld): Promise<readonly HistoryEntry[]> {
  const left = await broker.unacked()
  return [
    ...history.entries,
    ...(await effectsOf(db)),
    ...(await broker.log()),
    ...(await seenVersions(db, crew.consumer.settings.name)),
    { op: 'rest', source: 'broker', left: { 'messages at the broker': left } },
    { op: 'rest', source: 'operator', left: { 'dead letters': await unsettledLetters(db) } },
    ...(await readHistory({
      owner: {
        db,
        log: 'recorded',
        states: { balance: 'select id, balance::text as value from account', account: deposits('deposit') },
      },
      consumers: [
        {
          consumer: crew.consumer,
          effects: {
            query: `select event_id::text as event, 'account ' || account as aggregate, version::text as after from effect order by id`,
            of: [accounts.Deposited],
          },
          states: {
            balance: 'select account_id as id, balance::text as value from balance_view where deleted_at is null',
            account: deposits('effect'),
          },
        },
      ],
    })),
  ]
}

/** An operator redrives the poison; whatever else is given up had no reason to be. */
export async function unsettledLetters(db: Database): Promise<number> {
  const { rows } = await db.query(`select count(*)::int as n from waybill.dead_letter where state <> 'redriven'`)
  return (rows[0] as { n: number }).n
}

/** What the requests did. */
async function effectsOf(db: Database): Promise<readonly HistoryEntry[]> {
  const { rows } = await db.query('select request, account, amount, balance from deposit order by id')
  return (rows as { request: string; account: string; amount: number; balance: number }[]).map(
    ({ request, account, amount, balance }): HistoryEntry => ({
      op: 'effect',
      source: 'owner',
      request,
      payload: `${account} ${amount}`,
      response: JSON.stringify({ balance }),
    }),
  )
}

/** Every version that the projection had, in the order of the commits. */
async function seenVersions(db: Database, consumer: string): Promise<readonly HistoryEntry[]> {
  const { rows } = await db.query('select account, version::text from balance_seen order by id')
  return (rows as { account: string; version: string }[]).map(({ account, version }): HistoryEntry => ({
    op: 'observe',
    source: 'projection',
    consumer,
    aggregate: aggregateName(balances.aggregateType, account),
    version: Number(version),
  }))
}
