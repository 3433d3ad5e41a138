/**
 * What was discarded stays without effect in a rebuild: an event whose dead letter in the live generation is discarded, by its
 * handler or by an operator, comes as a void, as an event comes that was skipped in the outbox. A rebuild calls no handlers, so
 * nothing else would tell.
 *
 * What is handed over together is looked up together; deliveries keep their order.
 */
import { isForeign, readEvent } from '../../consumer/model/received-event.ts'
import { WaybillError } from '../../core/errors.ts'
import { redactedMessage } from '../../core/redact.ts'
import { voidEventType } from '../../core/event/event.ts'
import { rows, type Queryable } from '../../postgres/query/database.ts'
import type { Delivery, ReceiveOptions, Transport } from '../../transport/port/transport.ts'
import { findDiscarded, type RebuildScope } from './rebuild.sql.ts'

type Feed = Pick<Transport, 'receive'>

interface Letters {
  /** The consumer's database, which has its dead letters. */
  readonly db: Queryable
  readonly scope: RebuildScope
}

const mostLookedUp = 500
/** What could not be looked up comes again after this long. */
const againMs = 1_000

/** The feed, with voids in place of what was discarded. */
export function voidDiscarded({ feed, ...letters }: Letters & { readonly feed: Feed }): Feed {
  return { receive: (options) => feed.receive({ ...options, onDelivery: lookingUp(letters, options) }) }
}

function lookingUp(letters: Letters, { onDelivery, onError }: ReceiveOptions): ReceiveOptions['onDelivery'] {
  const waiting: Delivery[] = []
  let isLooking = false
  const look = async (): Promise<void> => {
    // The others that come in this moment come along.
    await Promise.resolve()
    while (waiting.length > 0) {
      const batch = waiting.splice(0, mostLookedUp)
      const discarded = await readDiscarded(letters, batch).catch((error: unknown) => onError(unread(letters, error)))
      for (const delivery of batch) {
        if (discarded === undefined) void delivery.nack(againMs)
        else onDelivery(discarded.has(delivery) ? asVoid(delivery) : delivery)
      }
    }
    isLooking = false
  }
  return (delivery) => {
    waiting.push(delivery)
    if (isLooking) return
    isLooking = true
    void look()
  }
}

async function readDiscarded({ db, scope }: Letters, batch: readonly Delivery[]): Promise<ReadonlySet<Delivery>> {
  const ids = new Map(batch.map((delivery) => [delivery, idOf(delivery)]))
  const asked = [...ids.values()].filter((id) => id !== undefined)
  const found = new Set((await rows(db, findDiscarded(scope, asked))).map(({ id }) => id))
  return new Set(batch.filter((delivery) => found.has(ids.get(delivery) ?? '')))
}

function unread({ scope }: Letters, cause: unknown): WaybillError {
  return new WaybillError('UNAVAILABLE', `The dead letters of ${scope.consumer} could not be read: ${redactedMessage(cause)}`, {
    cause,
  })
}

/** None for a message that is not ours. */
function idOf({ message }: Delivery): string | undefined {
  const event = readEvent(message)
  return isForeign(event) ? undefined : event.id
}

function asVoid(delivery: Delivery): Delivery {
  const { message, lost } = delivery
  const attributes = { ...message.attributes, event_type: voidEventType }
  return {
    message: { ...message, attributes, body: new Uint8Array(0) },
    lost,
    ack: () => delivery.ack(),
    nack: (delayMs) => delivery.nack(delayMs),
  }
}
