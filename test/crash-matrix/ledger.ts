/**
 * The small system that is crashed: deposits into accounts, told to a consumer as changes (each applied once, in order, by a
 * handler) and as states (projected). Every effect leaves a row that shows it if it happens twice.
 */
import { z } from 'zod'
import { command, type Command } from '../../src/command/model/command.ts'
import { createCommands, type Commands } from '../../src/command/commands.ts'
import type { CommandCache } from '../../src/command/cache/cache.ts'
import { createConsumer, type Consumer } from '../../src/consumer/consumer.ts'
import { listDeadLetters } from '../../src/consumer/operate/dead-letters.ts'
import { redriveDeadLetters } from '../../src/consumer/operate/redrive.ts'
import { delta, state } from '../../src/core/event/event.ts'
import { createSignals } from '../../src/core/signals.ts'
import { stream } from '../../src/core/event/stream.ts'
import { createOutbox, event } from '../../src/outbox/outbox.ts'
import { createRelay, type Relay } from '../../src/outbox/relay/relay.ts'
import type { Database, Tx } from '../../src/postgres/query/database.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import type { Publisher, Transport } from '../../src/transport/port/transport.ts'

export const topic = 'account.events'
export const accounts = stream('account', { topic, events: { Deposited: delta(z.object({ amount: z.number() })) } })
export const balances = stream('balance', { topic, events: { BalanceChanged: state(z.object({ balance: z.number() })) } })

export const tables = `
  create table account (id text primary key, balance int not null);
  create table deposit (id bigint generated always as identity primary key, request text not null, account text not null,
    amount int not null, balance int not null);
  create table balance_view (account_id text primary key, balance int, version bigint not null, deleted_at timestamptz);
  create table effect (id bigint generated always as identity primary key, event_id uuid not null, account text not null,
    version bigint not null, amount int not null);
  -- A change that cannot be applied as long as it is in here.
  create table poison (account text not null, version bigint not null);
  create function refuse_poison() returns trigger language plpgsql as $refuse$
    begin
      if exists (select from poison p where p.account = new.account and p.version = new.version) then
        raise 'Account % cannot take its change %.', new.account, new.version;
      end if;
      return new;
    end $refuse$;
  create trigger refuse_poison before insert on effect for each row execute function refuse_poison();
  -- Every version that the projection ever had, in their order: one that goes back shows also if it comes forward again.
  create table balance_seen (id bigint generated always as identity primary key, account text not null, version bigint not null);
  create function note_balance() returns trigger language plpgsql as $note$
    begin
      insert into balance_seen (account, version) values (new.account_id, new.version);
      return null;
    end $note$;
  create trigger note_balance after insert or update on balance_view for each row execute function note_balance();`

/** How long a process that says nothing keeps what it holds: lanes of relays and processors, and messages at the broker. */
export const leaseMs = 800
/** The lease of Pub/Sub is fifteen seconds; so much faster runs its time. */
export const clockFactor = 15

export interface Deposit {
  readonly request: string
  readonly account: string
  readonly amount: number
}

/** What a deposit does to the owner's tables. Returns the balance. */
export async function apply(tx: Tx, { request, account, amount }: Deposit): Promise<number> {
  const { rows } = await tx.query(
    'insert into account as a (id, balance) values ($1, $2) on conflict (id) do update set balance = a.balance + excluded.balance returning balance',
    [account, amount],
  )
  const { balance } = rows[0] as { balance: number }
  await tx.query('insert into deposit (request, account, amount, balance) values ($1, $2, $3, $4)', [
    request,
    account,
    amount,
    balance,
  ])
  return balance
}

const outbox = createOutbox()

/** A deposit in a transaction of the service's own, with its events. */
export async function write(db: Database, deposit: Deposit): Promise<void> {
  await transaction(db, async (tx) => tell(tx, deposit, await apply(tx, deposit)))
}

/** What is told of a deposit. */
export async function tell(tx: Tx, { account, amount }: Deposit, balance: number): Promise<void> {
  await outbox.addMany(tx, [event(accounts.Deposited, account, { amount }), event(balances.BalanceChanged, account, { balance })])
}

export const depositCommand: Command<Deposit, { balance: number }> = command('Deposit', {
  input: z.object({ request: z.string(), account: z.string(), amount: z.number() }),
  aggregate: ({ account }) => ({ type: accounts.aggregateType, id: account }),
  store: 'response',
  plan: (input) => input,
  execute: async (tx, plan, { emit }) => {
    const balance = await apply(tx, plan)
    emit(accounts.Deposited, plan.account, { amount: plan.amount })
    emit(balances.BalanceChanged, plan.account, { balance })
    return { balance }
  },
})

/** Poisons the first change of the first account. */
export async function poison(db: Database): Promise<void> {
  await db.query(`insert into poison (account, version) values ('a', 1)`)
}

/** An operator mends what kept the changes of the first account from being applied, once one of them is dead, and redrives it. */
export async function redrivePoison(db: Database): Promise<void> {
  const letters = { db, schema: 'waybill' }
  const filter = { aggregateType: accounts.aggregateType, aggregateId: 'a' }
  if ((await listDeadLetters(letters, { ...filter, state: 'dead', limit: 1 })).length === 0) return
  await db.query('delete from poison')
  await redriveDeadLetters({ ...letters, filter, actor: 'operator', reason: 'mended' })
}

/** Waits are short: a cell lasts a moment. */
export function commandsOn(db: Database, cache: CommandCache): Commands {
  const waits = { markerLockMs: 100, lockTimeoutMs: 1_000, statementTimeoutMs: 1_200, pendingTtlMs: 1_500, cacheBudgetMs: 200 }
  return createCommands({ db, outbox, cache, signals: createSignals(), ...waits })
}

/** @param publishTimeoutMs short only where a process is to give up what it has sent, after it was frozen */
export function relayOn(db: Database, transport: Publisher, publishTimeoutMs = 20_000): Relay {
  return createRelay({
    db,
    outbox,
    transport,
    leaseMs,
    renewMs: leaseMs / 4,
    busyMs: 2,
    idleMs: 20,
    publishTimeoutMs,
    backoff: { firstMs: 20, maxMs: 100 },
    signals: createSignals(),
  })
}

export interface LedgerConsumer {
  readonly mode: 'direct' | 'stored'
  /** Whether there is a change that it has to give up. */
  readonly isPoisoned: boolean
}

export function consumerOn(db: Database, transport: Pick<Transport, 'receive'>, { mode, isPoisoned }: LedgerConsumer): Consumer {
  const consumer = createConsumer({
    db,
    transport,
    name: 'ledger',
    streams: [accounts, balances],
    mode,
    leaseMs,
    lingerMs: 1,
    pollMs: 20,
    lockTimeoutMs: 1_000,
    backoff: { firstMs: 10, maxMs: 100 },
    // A process that stands still for longer than its lease looks dead, and no event is to blame.
    maxCrashes: 1_000,
    ...(isPoisoned ? { maxAttempts: 2 } : {}),
    signals: createSignals(),
  })
  consumer.on(accounts.Deposited, async ({ id, aggregateId, version, data }, { tx }) => {
    await tx.query('insert into effect (event_id, account, version, amount) values ($1, $2, $3, $4)', [
      id,
      aggregateId,
      String(version),
      data.amount,
    ])
  })
  consumer.project(balances, { table: 'balance_view', key: 'account_id', set: ({ data }) => ({ balance: data.balance }) })
  return consumer
}
