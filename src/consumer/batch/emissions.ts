/**
 * The events that handlers of one batch emit: collected while they run, recorded with one statement at the end. What a handler
 * emits after it has returned could miss that, and is refused.
 *
 * Each has an id that follows from the consumer, the handled event and its place among the emitted ones, and names that
 * source. So whoever handles the event again, in a replay or after the inbox forgot it, emits nothing twice.
 */
import { WaybillError } from '../../core/errors.ts'
import { businessKeyId } from '../../core/event/id.ts'
import type { Tx } from '../../postgres/query/database.ts'
import { reportLate } from '../../postgres/transaction/tx-scope.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { EmitEvent, EmittedEvent } from '../model/handler.ts'
import type { Item } from '../model/batch-item.ts'

export interface Emissions {
  readonly count: number
  /** The `emit` of one handled event, whose handler has this `tx`. It refuses as soon as the next is asked for, or `record` is called. */
  emitFor(item: Item, tx: Tx): EmitEvent
  /** Writes what was emitted. */
  record(tx: Tx): Promise<void>
}

export function createEmissions({
  settings,
  emitting,
}: {
  readonly settings: ConsumerSettings
  readonly emitting: boolean
}): Emissions {
  const { outbox, name, tracing } = settings
  const emitted: EmittedEvent[] = []
  let turn = 0
  return {
    get count() {
      return emitted.length
    },
    emitFor: (item, tx) => {
      let ordinal = 0
      const own = (turn += 1)
      return (type, aggregateId, ...[data, options = {}]) => {
        if (own !== turn) {
          reportLate(tx, `emit(${type.name})`)
          throw tooLate(name, type.name)
        }
        if (outbox === undefined) throw noOutbox(name)
        const source = { name, eventId: item.event.id, ordinal: (ordinal += 1) }
        if (!emitting) return
        const id = businessKeyId('waybill.emit', [name, item.event.id, ordinal])
        // Taken here, inside the handler's span; they are all written later.
        const headers = tracing.isOn ? { headers: { ...tracing.headers(), ...options.headers } } : {}
        emitted.push({ type, aggregateId, data, options: { ...options, ...headers, id, source } })
      }
    },
    record: async (tx) => {
      turn += 1
      if (emitted.length > 0) await outbox?.addMany(tx, emitted)
    },
  }
}

function tooLate(consumer: string, type: string): WaybillError {
  return new WaybillError(
    'NOT_A_TRANSACTION',
    `consumer ${consumer}: ${type} was emitted after its handler had returned; it was not recorded. Is an await missing inside?`,
  )
}

function noOutbox(consumer: string): WaybillError {
  return new WaybillError('INVALID_OPTION', `consumer ${consumer}: emit(…) needs an outbox. Pass \`outbox\` to createConsumer.`)
}
