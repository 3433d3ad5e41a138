/**
 * The small bank that the tests of commands use: accounts with a balance, and a ledger in which every effect leaves a row.
 */
import { z } from 'zod'
import { command, type Command } from '../../src/command/model/command.ts'
import { reject } from '../../src/command/model/rejection.ts'
import { state } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import { createOutbox, type Outbox } from '../../src/outbox/outbox.ts'
import type { Database, Queryable, Tx } from '../../src/postgres/query/database.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { currentCall } from './history.ts'

export const accounts = stream('account', {
  topic: 'account.events',
  events: { BalanceChanged: state(z.object({ balance: z.number() })) },
})

export interface Deposit {
  readonly account: string
  readonly amount: number
}

export interface DepositResult {
  readonly balance: number
  readonly lucky: number
}

/** Counts how often each step of a command ran, by request id. */
export interface Steps {
  readonly loads: Map<string, number>
  readonly plans: Map<string, number>
  readonly executes: Map<string, number>
}

export function newSteps(): Steps {
  return { loads: new Map(), plans: new Map(), executes: new Map() }
}

export interface DepositOptions {
  readonly name?: string
  readonly store?: 'marker' | 'response'
  readonly storeRejections?: boolean
  readonly sensitive?: boolean
  readonly locking?: 'row' | 'version'
  /** Where it is refused to go below zero. @default 'execute' */
  readonly rejectsIn?: 'plan' | 'execute'
  readonly steps?: Steps
  /** Runs inside the transaction, before the effect. */
  readonly before?: (tx: Tx, context: { readonly attempt: number; readonly requestId: string | undefined }) => Promise<void>
  /** Runs inside the transaction, after the effect. */
  readonly after?: (tx: Tx, context: { readonly attempt: number; readonly requestId: string | undefined }) => Promise<void>
}

/** Adds to an account, with a lucky number that the plan drew. Rejects to go below zero. */
export function depositCommand(options: DepositOptions = {}): Command<Deposit, DepositResult> {
  const { name = 'Deposit', store = 'marker', storeRejections = false, locking = 'row', steps = newSteps() } = options
  const { rejectsIn = 'execute', sensitive = false } = options
  const count = (map: Map<string, number>, key = ''): void => void map.set(key, (map.get(key) ?? 0) + 1)
  return command(name, {
    input: z.object({ account: z.string(), amount: z.number() }),
    aggregate: ({ account }) => ({ type: accounts.aggregateType, id: account }),
    store,
    storeRejections,
    sensitive,
    locking,
    ...(rejectsIn === 'plan' ? { load: (reader: Queryable, { account }: Deposit) => balanceOf(reader, account) } : {}),
    plan: ({ account, amount }, { random, requestId, loaded }) => {
      count(steps.plans, requestId)
      if (loaded !== undefined && loaded + amount < 0) throw reject('not-enough', { have: loaded })
      const lucky = Math.floor(random.next() * 1_000_000_000)
      currentCall()?.drawn.push(lucky)
      return { account, amount, lucky }
    },
    execute: async (tx, plan, { principal, requestId, attempt, aggregate, emit }) => {
      count(steps.executes, requestId)
      const call = currentCall()
      if (call !== undefined) call.executes += 1
      await options.before?.(tx, { attempt, requestId })
      const before = await balanceOf(tx, plan.account)
      const balance = before + plan.amount
      if (balance < 0) throw reject('not-enough', { have: before })
      await tx.query(
        'insert into account (id, balance) values ($1, $2) on conflict (id) do update set balance = excluded.balance',
        [plan.account, balance],
      )
      await tx.query('insert into ledger (principal, request_id, account, amount, lucky) values ($1, $2, $3, $4, $5)', [
        principal,
        requestId ?? 'none',
        plan.account,
        plan.amount,
        plan.lucky,
      ])
      emit(accounts.BalanceChanged, aggregate.id, { balance })
      await options.after?.(tx, { attempt, requestId })
      return { balance, lucky: plan.lucky }
    },
  })
}

export interface Bank {
  readonly outbox: Outbox
  balance(account: string): Promise<number>
  effects(requestId: string): Promise<number>
  ledger(): Promise<readonly LedgerRow[]>
  reset(): Promise<void>
}

export interface LedgerRow {
  readonly principal: string
  readonly request_id: string
  readonly account: string
  readonly amount: number
  readonly lucky: number
}

export const bankTables = `
  create table if not exists account (id text primary key, balance int not null);
  create table if not exists ledger (
    id bigint generated always as identity primary key, principal text not null, request_id text not null,
    account text not null, amount int not null, lucky int not null);`

/** Makes the tables, ours and the bank's, in the database. */
export async function openBank(db: Database): Promise<Bank> {
  await migrate(db, { schema: 'waybill', service: 'bank' })
  await db.query(bankTables)
  return bankOn(db)
}

/** The bank in a database that has its tables. */
export function bankOn(db: Database): Bank {
  return {
    outbox: createOutbox(),
    balance: (account) => balanceOf(db, account),
    effects: async (requestId) => {
      const { rows } = await db.query('select count(*)::int as n from ledger where request_id = $1', [requestId])
      return (rows[0] as { n: number }).n
    },
    ledger: async () => (await db.query('select * from ledger order by id')).rows as readonly LedgerRow[],
    reset: async () =>
      void (await db.query(
        'truncate account, ledger, waybill.command_marker, waybill.aggregate_version, waybill.outbox, waybill.outbox_dispatch',
      )),
  }
}

async function balanceOf(db: Queryable, account: string): Promise<number> {
  const { rows } = await db.query('select balance from account where id = $1', [account])
  return (rows[0] as { balance: number } | undefined)?.balance ?? 0
}
