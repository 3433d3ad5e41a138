/**
 * What the command benches share: a durable Postgres with accounts in it, Redis where the machine has one, and one piece of work
 * that is done bare or as a command.
 */
import { Redis as IoRedis } from 'ioredis'
import { z } from 'zod'
import type { CommandCache } from '../../src/command/cache/cache.ts'
import { command, type Command } from '../../src/command/model/command.ts'
import { createCommands, type Commands, type CommandsOptions } from '../../src/command/commands.ts'
import { memoryCache } from '../../src/command/cache/memory.ts'
import { ioredisCache } from '../../src/command/cache/redis.ts'
import { state } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import { createOutbox, type Outbox } from '../../src/outbox/outbox.ts'
import { connect, type Connection } from '../../src/postgres/connect.ts'
import type { Tx } from '../../src/postgres/query/database.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { startPostgres } from '../../src/testing/servers/postgres.ts'
import { findRedis, startRedis } from '../../src/testing/servers/redis.ts'

export const accounts = stream('account', {
  topic: 'account.events',
  events: { BalanceChanged: state(z.object({ balance: z.number() })) },
})

export interface CommandBench {
  readonly url: string
  readonly db: Connection
  readonly outbox: Outbox
  readonly cache: CommandCache
  readonly commandsWith: (options?: Partial<CommandsOptions>) => Commands
  readonly close: () => Promise<void>
}

export async function openCommandBench(settings: Readonly<Record<string, string>> = {}): Promise<CommandBench> {
  const server = await startPostgres({ durable: true, settings: { shared_buffers: '1GB', max_wal_size: '8GB', ...settings } })
  const db = connect({ url: server.url, max: 16 })
  await migrate(db, { schema: 'waybill', service: 'bench' })
  await db.query(`
    create table account (id text primary key, balance int not null) with (fillfactor = 50);
    insert into account select 'account-' || n, 0 from generate_series(0, 9999) n;
    create table ledger (id bigint generated always as identity primary key, account text not null, amount int not null)`)
  const redis = findRedis() === undefined ? undefined : await startRedis()
  const client = redis === undefined ? undefined : new IoRedis(redis.url)
  const cache = client === undefined ? memoryCache() : ioredisCache(client)
  const outbox = createOutbox()
  return {
    url: server.url,
    db,
    outbox,
    cache,
    commandsWith: (options = {}) => createCommands({ db, outbox, ...options }),
    close: async () => {
      client?.disconnect()
      await redis?.stop()
      await db.close()
      await server.stop('immediate')
    },
  }
}

/** The business of the command: what the bare transaction does as well. */
export async function depositRows(tx: Tx, account: string, amount: number): Promise<number> {
  const { rows } = await tx.query('update account set balance = balance + $2 where id = $1 returning balance', [account, amount])
  await tx.query('insert into ledger (account, amount) values ($1, $2)', [account, amount])
  return (rows[0] as { balance: number }).balance
}

export interface Deposited {
  readonly balance: number
  readonly account: string
}

export function depositCommand(
  name: string,
  options: { readonly store?: 'marker' | 'response'; readonly locking?: 'row' | 'version' } = {},
): Command<{ account: string; amount: number }, Deposited> {
  return command(name, {
    input: z.object({ account: z.string(), amount: z.number() }),
    aggregate: ({ account }) => ({ type: 'account', id: account }),
    ...options,
    execute: async (tx, { account, amount }, { emit }) => {
      const balance = await depositRows(tx, account, amount)
      emit(accounts.BalanceChanged, account, { balance })
      return { balance, account }
    },
  })
}

let drawn = 0
export const nextAccount = (): string => `account-${(drawn = (drawn + 7919) % 10_000)}`
let requests = 0
export const nextRequest = (): string => `0198c0de-0000-7000-8000-${String((requests += 1)).padStart(12, '0')}`

/** Microseconds per call, with so many callers at once. */
export async function microsecondsPerCall(
  calls: number,
  callers: number,
  call: (n: number) => Promise<unknown>,
): Promise<number> {
  let left = calls
  const startedAt = process.hrtime.bigint()
  const caller = async (): Promise<void> => {
    while (left > 0) await call((left -= 1))
  }
  await Promise.all(Array.from({ length: callers }, caller))
  return Number(process.hrtime.bigint() - startedAt) / 1_000 / calls
}
