/**
 * The small system that drills break: accounts with deposits (deltas, each with one effect) and profiles (states, projected).
 *
 * Every deposit is one transaction of the owner with two events. Whatever happens to the processes, at rest the consumer has
 * applied each deposit once and its profiles are the owner's: the history checker decides.
 */
import { createConsumer, type Consumer } from '../../consumer/consumer.ts'
import type { ConsumerOptions } from '../../consumer/model/consumer-options.ts'
import { delta, state, type EventDefinition } from '../../core/event/event.ts'
import type { StandardSchema } from '../../core/encoding/standard-schema.ts'
import { stream, type Stream } from '../../core/event/stream.ts'
import { createOutbox, type Outbox } from '../../outbox/outbox.ts'
import { execute, one, type Database, type Tx } from '../../postgres/query/database.ts'
import { addToAccount, drillTables, insertEffect, type DrillTables } from './tables.sql.ts'

export interface Deposit {
  readonly amount: number
}

export interface Profile {
  readonly total: number
}

export interface DrillStreams {
  readonly accounts: Stream<{ Deposited: EventDefinition<'delta', Deposit, Deposit> }>
  readonly profiles: Stream<{ ProfileChanged: EventDefinition<'state', Profile, Profile> }>
}

export interface DrillWorld {
  readonly db: Database
  readonly schema: string
  readonly tables: DrillTables
  readonly outbox: Outbox
  readonly streams: DrillStreams
}

/** The name under which drills consume. */
export const consumerName = 'drill'
/** The amount that no handler can digest. */
export const poisonAmount = 666

export function createWorld({
  db,
  schema,
  topic,
}: {
  readonly db: Database
  readonly schema: string
  readonly topic: string
}): DrillWorld {
  const streams: DrillStreams = {
    accounts: stream('account', { topic, events: { Deposited: delta(numbers<Deposit>('amount')) } }),
    profiles: stream('profile', { topic, events: { ProfileChanged: state(numbers<Profile>('total')) } }),
  }
  return { db, schema, tables: drillTables(schema), outbox: createOutbox({ schema }), streams }
}

/** One deposit, in the caller's transaction. */
export async function deposit(
  { tables, outbox, streams }: DrillWorld,
  tx: Tx,
  to: { account: string; amount: number },
): Promise<number> {
  const total = Number((await one(tx, addToAccount(tables, to.account, to.amount))).total)
  await outbox.add(tx, streams.accounts.Deposited, to.account, { amount: to.amount })
  await outbox.add(tx, streams.profiles.ProfileChanged, to.account, { total })
  return total
}

/** The consumer of the drills. `beforeEnd` is called in each handler, when its effect is written and not yet committed. */
export function createDrillConsumer(
  { db, schema, streams, tables }: DrillWorld,
  options: Pick<ConsumerOptions, 'transport'> & Partial<ConsumerOptions>,
  beforeEnd: () => Promise<void> = async () => {},
): Consumer {
  const consumer = createConsumer({
    db,
    name: consumerName,
    streams: [streams.accounts, streams.profiles],
    schema,
    lingerMs: 1,
    pollMs: 100,
    // Processes die here all the time, and no event is to blame.
    maxCrashes: 1_000,
    maxAttempts: 3,
    backoff: { firstMs: 50, maxMs: 200 },
    ...options,
  })
  consumer.on(streams.accounts.Deposited, async ({ id, aggregateId, data }, { tx }) => {
    if (data.amount === poisonAmount) throw new Error('This deposit cannot be digested, however often it is tried.')
    await execute(tx, insertEffect(tables, { eventId: id, account: aggregateId, amount: data.amount }))
    await beforeEnd()
  })
  consumer.project(streams.profiles, {
    table: `${schema}.drill_profile`,
    key: 'account',
    set: ({ data }) => ({ total: data.total }),
  })
  return consumer
}

/** An object with one number in it; drills depend on no validator. */
function numbers<Data>(key: keyof Data & string): StandardSchema<Data, Data> {
  const isFine = (value: unknown): boolean => typeof (value as Readonly<Record<string, unknown>> | null)?.[key] === 'number'
  return {
    '~standard': {
      version: 1,
      vendor: 'waybill',
      validate: (value) => (isFine(value) ? { value: value as Data } : { issues: [{ message: `${key} must be a number` }] }),
    },
  }
}
