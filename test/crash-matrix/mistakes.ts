/** Known mistakes of a process: a matrix that does not find them out proves nothing. */
import type { Database } from '../../src/postgres/query/database.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import type { Delivery, IncomingMessage, Publisher, Transport } from '../../src/transport/port/transport.ts'
import { apply, tell, write, type Deposit } from './ledger.ts'

export type Mistake =
  | 'acknowledges first'
  | 'acknowledges its last attempt first'
  | 'believes in refused messages'
  | 'adds events before'
  | 'adds events afterwards'

/** Resolves when a message will not come again whose ack was not confirmed in time; rejects if it may. */
export type Forgotten = (message: IncomingMessage) => Promise<void>

/** A consumer that acknowledges what it has not done yet: everything, or what it has given back once. */
export function mistakenReceiver(
  transport: Pick<Transport, 'receive'>,
  mistake: Mistake | undefined,
  forgotten: Forgotten,
): Pick<Transport, 'receive'> {
  if (mistake !== 'acknowledges first' && mistake !== 'acknowledges its last attempt first') return transport
  const came = new Set<string | undefined>()
  return {
    receive: (options) =>
      transport.receive({
        ...options,
        onDelivery: (delivery) => {
          const isAgain = came.size === came.add(delivery.message.attributes['event_id']).size
          if (mistake !== 'acknowledges first' && !isAgain) return options.onDelivery(delivery)
          const { message, lost } = delivery
          const done: Delivery = { message, lost, nack: (delayMs) => delivery.nack(delayMs), ack: async () => 'confirmed' }
          // The broker has heard it before anything is done, however slow the way to it is. What it has not heard comes again.
          void heard(delivery, forgotten).then(
            () => options.onDelivery(done),
            () => undefined,
          )
        },
      }),
  }
}

async function heard(delivery: Delivery, forgotten: Forgotten): Promise<void> {
  const outcome = await delivery.ack()
  if (outcome === 'lost') throw new Error("It is another's by now.")
  if (outcome === 'unconfirmed') await forgotten(delivery.message)
}

/** A relay that takes what the broker refused for published. */
export function mistakenPublisher(transport: Publisher, mistake: Mistake | undefined): Publisher {
  if (mistake !== 'believes in refused messages') return transport
  return {
    maxBytes: transport.maxBytes,
    publish: async (messages, options) =>
      (await transport.publish(messages, options)).map((outcome) =>
        outcome.status === 'unavailable' ? { status: 'confirmed', messageId: 'none' } : outcome,
      ),
  }
}

/** A writer whose events are in a transaction of their own, before that of the deposit or after it. */
export function mistakenWrite(mistake: Mistake | undefined): (db: Database, deposit: Deposit) => Promise<void> {
  if (mistake === 'adds events afterwards')
    return async (db, deposit) => {
      const balance = await transaction(db, (tx) => apply(tx, deposit))
      await transaction(db, (tx) => tell(tx, deposit, balance))
    }
  if (mistake === 'adds events before')
    return async (db, deposit) => {
      const { rows } = await db.query('select balance from account where id = $1', [deposit.account])
      const { balance = 0 } = (rows[0] ?? {}) as { readonly balance?: number }
      await transaction(db, (tx) => tell(tx, deposit, balance + deposit.amount))
      await transaction(db, (tx) => apply(tx, deposit))
    }
  return write
}
