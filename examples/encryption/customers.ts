/**
 * Customers whose names nobody but the key holders can read: in the outbox, at the broker, in an inbox, in a dead letter, in a backup.
 *
 * To forget one is one transaction: the data key goes, the row goes, and a tombstone tells every consumer. A consumer that meets the old
 * events after that (a redelivery, a rebuild) goes on with what stands in for them, until it reads the tombstone.
 */
import {
  command,
  createConsumer,
  jsonCodec,
  state,
  stream,
  tombstone,
  transaction,
  type Consumer,
  type ConsumerOptions,
  type Database,
  type Outbox,
} from 'waybill'
import { z } from 'zod'
import type { DataKeys } from './data-keys.ts'
import { sealed } from './sealed.ts'

const customer = z.object({ name: z.string(), email: z.string() })

export function customerStream(keys: DataKeys) {
  const data = sealed(jsonCodec(customer), { keys, shredded: () => ({ name: '(forgotten)', email: '' }) })
  return stream('customer', {
    topic: 'customer.events',
    events: { CustomerChanged: state(data), CustomerForgotten: tombstone() },
  })
}

export type Customers = ReturnType<typeof customerStream>

export const customerTables = `
  create table if not exists public.customer (id text primary key, name text not null, email text not null);
  create table if not exists public.customer_view (
    customer_id text primary key,
    name        text,
    version     bigint not null,
    deleted_at  timestamptz
  )`

/** Sets a customer's data, and answers with it: an answer worth sealing. */
export function changeCustomer(customers: Customers) {
  return command('ChangeCustomer', {
    input: customer.extend({ id: z.string() }),
    aggregate: ({ id }) => ({ type: 'customer', id }),
    store: 'response',
    execute: async (tx, { id, name, email }, { emit }) => {
      const text = `insert into public.customer (id, name, email) values ($1, $2, $3)
        on conflict (id) do update set name = excluded.name, email = excluded.email`
      await tx.query(text, [id, name, email])
      emit(customers.CustomerChanged, id, { name, email })
      return { id, name, email }
    },
  })
}

export interface ForgetParts {
  readonly db: Database
  readonly outbox: Outbox
  readonly keys: DataKeys
  readonly customers: Customers
}

/** Shreds a customer. */
export async function forgetCustomer({ db, outbox, keys, customers }: ForgetParts, id: string): Promise<void> {
  await transaction(db, async (tx) => {
    await keys.shred(tx, { type: 'customer', id })
    await tx.query('delete from public.customer where id = $1', [id])
    await outbox.add(tx, customers.CustomerForgotten, id)
  })
}

/** Another service, that shows names. */
export function createView(options: Omit<ConsumerOptions, 'name' | 'streams'>, customers: Customers): Consumer {
  const view = createConsumer({ ...options, name: 'view', streams: [customers] })
  return view.project(customers, { table: 'public.customer_view', key: 'customer_id', set: ({ data }) => ({ name: data.name }) })
}
