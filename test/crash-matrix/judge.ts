/** The history of a cell: what clients asked and were told, what the broker stored, and what the database holds at the end. */
import type { Database } from '../../src/postgres/database.ts'
import type { HistoryEntry } from '../../src/testing/history/entry.ts'
import type { History } from '../../src/testing/history/history.ts'
import { readHistory } from '../../src/testing/history/read-history.ts'
import type { CellBroker } from './broker.ts'
import type { Crew } from './crew.ts'
import { accounts } from './ledger.ts'

export interface JudgedWorld {
  readonly db: Database
  readonly broker: CellBroker
  readonly crew: Crew
  readonly history: History
}

export async function judge({ db, broker, crew, history }: JudgedWorld): Promise<readonly HistoryEntry[]> {
  const { rows } = await db.query('select request, account, amount, balance from deposit order by id')
  const effects = (rows as { request: string; account: string; amount: number; balance: number }[]).map(
    ({ request, account, amount, balance }): HistoryEntry => ({
      op: 'effect',
      source: 'owner',
      request,
      payload: `${account} ${amount}`,
      response: JSON.stringify({ balance }),
    }),
  )
  const left = await broker.unacked()
  return [
    ...history.entries,
    ...effects,
    ...(await broker.log()),
    { op: 'rest', source: 'broker', left: { 'messages at the broker': left } },
    ...(await readHistory({
      owner: { db, log: 'recorded', states: { balance: 'select id, balance::text as value from account' } },
      consumers: [
        {
          consumer: crew.consumer,
          effects: {
            query: `select event_id::text as event, 'account ' || account as aggregate, version::text as after from effect order by id`,
            of: [accounts.Deposited],
          },
          states: { balance: 'select account_id as id, balance::text as value from balance_view where deleted_at is null' },
        },
      ],
    })),
  ]
}
