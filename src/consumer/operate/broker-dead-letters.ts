/**
 * Drains a consumer's dead-letter subscription at the broker into its dead letters here, so that there is one place to look.
 *
 * Our own attempts end before the broker's do; what it moves there all the same was never settled by us: a process that kept
 * dying, a limit set too low. A message is acknowledged after its letter is committed. One whose effect is committed already
 * makes no letter, and one that comes twice makes one. One whose connection falls silent is given back, and recorded on another one.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { resolve, oneOf, wholeBetween } from '../../core/options.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import type { Verifier } from '../../core/event/signing.ts'
import { execute, one, type Database } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { answerGraceMs, withDeadlines } from '../../postgres/transaction/deadline.ts'
import type { Delivery, Transport } from '../../transport/port/transport.ts'
import { assertVerifier } from '../model/consumer-options.ts'
import { holdAggregate } from '../tables/dead-letter.sql.ts'
import { inboxTables, registerConsumer, type Scope } from '../tables/inbox.sql.ts'
import { makeDeadLetter } from '../failure/make-dead-letter.ts'
import { allReceivers } from '../receive/open-receivers.ts'
import { passOver } from '../failure/pass-over.ts'
import { isForeign, readEvent } from '../model/received-event.ts'
import { verified } from '../receive/verified.ts'

export interface BrokerDeadLettersOptions {
  readonly db: Database
  readonly transport: Pick<Transport, 'receive'>
  /** The consumer whose dead letters they are; it is also who reads the topics. */
  readonly consumer: string
  /** The dead-letter topics. On Pub/Sub: `<topic>.<consumer>.dead`. */
  readonly topics: readonly string[]
  /** @default 'waybill' */
  readonly schema?: string
  /** As the consumer's own. @default 'hold' */
  readonly onDead?: 'hold' | 'pass'
  /** As the consumer's own: what it would refuse becomes no dead letter. @default 'off' */
  readonly verify?: 'required' | 'accept' | 'off'
  /** As the consumer's own. @default none */
  readonly verifier?: Verifier | undefined
  /** With `verify`: the topic that the messages were published to, which a signature names. @default none */
  readonly publishedTo?: string | undefined
  /** Unsettled messages, at most. @default 100 */
  readonly maxInFlight?: number
  readonly signals?: SignalBus
  readonly clock?: Clock
}

type Settings = Required<BrokerDeadLettersOptions>

/** A service that drains until it is stopped. */
export function drainBrokerDeadLetters(options: BrokerDeadLettersOptions): Service {
  const settings = resolveOptions(options)
  const { db, consumer, topics, schema, signals, maxInFlight, publishedTo } = settings
  const transport = verified({ transport: settings.transport, settings: { ...settings, name: consumer }, publishedTo })
  return {
    name: `dead letters of ${consumer}`,
    run: async ({ stopping, aborting }) => {
      const tables = inboxTables(schema)
      const { generation } = await one(db, registerConsumer({ tables, consumer }))
      const scope: Scope = { tables, consumer, generation }
      const opening = topics.map((topic) =>
        transport.receive({
          topic,
          consumer,
          maxMessages: maxInFlight,
          maxBytes: defaults.consumer.maxInFlightBytes,
          onDelivery: (delivery) => void settle(settings, scope, delivery),
          onError: (error) => signals.emit('consumer.disturbed', { consumer, topic, error }),
        }),
      )
      const receivers = await allReceivers(opening, stopping)
      await new Promise<void>((ended) => {
        stopping.addEventListener('abort', () => ended(), { once: true })
        if (stopping.aborted) ended()
      })
      await Promise.all(receivers.map((receiver) => receiver.close(aborting)))
    },
  }
}

async function settle(settings: Settings, scope: Scope, delivery: Delivery): Promise<void> {
  try {
    await record(settings, scope, delivery)
    await delivery.ack()
  } catch (error) {
    settings.signals.emit('consumer.disturbed', { consumer: scope.consumer, topic: delivery.message.topic, error })
    await delivery.nack(retryMs)
  }
}

const retryMs = 1_000
const brokerError = 'The broker gave up delivering it: it was never acknowledged within its attempts.'

async function record({ db, onDead, signals }: Settings, scope: Scope, { message }: Delivery): Promise<void> {
  const event = readEvent(message)
  const isOurs = !isForeign(event)
  const error = isOurs ? brokerError : event.problem
  const reason = isOurs ? 'broker' : 'not_ours'
  const attempts = message.deliveryAttempt ?? 1
  const aggregate = isOurs ? { type: event.aggregateType, id: event.aggregateId, version: event.version } : undefined
  const holds = isOurs && onDead === 'hold'
  const isNew = await transaction(db, async (tx) => {
    const burial = { eventId: event.id, eventType: event.type, aggregate, message, reason, error, attempts, holds } as const
    const letter = await makeDeadLetter(tx, scope, burial)
    if (letter === undefined) return false
    if (isOurs && onDead === 'hold') await execute(tx, holdAggregate(scope, { event }))
    // The stream is not known here, so it is taken for one whose versions go one after the other.
    else if (isOurs) await passOver(tx, scope, { event, message, sequential: true, closesGap: false })
    return true
  })
  if (!isNew) return
  signals.emit('consumer.dead', {
    consumer: scope.consumer,
    eventId: event.id,
    messageId: message.messageId,
    orderingKey: message.orderingKey,
    eventType: event.type,
    aggregateType: aggregate?.type ?? '',
    aggregateId: aggregate?.id ?? '',
    reason,
    attempts,
    held: holds,
    error,
  })
}

function resolveOptions(given: BrokerDeadLettersOptions): Settings {
  const settings = resolve<Settings>(
    'broker dead letters',
    {
      db: given.db,
      transport: given.transport,
      consumer: given.consumer,
      topics: given.topics,
      schema: defaults.schema,
      onDead: defaults.consumer.onDead,
      verify: defaults.consumer.verify,
      verifier: undefined,
      publishedTo: undefined,
      maxInFlight: 100,
      signals: defaultSignals,
      clock: systemClock,
    },
    given,
    { onDead: oneOf('hold', 'pass'), verify: oneOf('required', 'accept', 'off'), maxInFlight: wholeBetween(1, 10_000) },
  )
  assertVerifier('broker dead letters', settings)
  if (settings.verify !== 'off' && settings.publishedTo === undefined)
    throw new WaybillError(
      'INVALID_OPTION',
      'broker dead letters.publishedTo: verify needs the topic that the messages were published to; a signature names it.',
    )
  const statementMs = defaults.transaction.statementTimeoutMs + answerGraceMs
  return { ...settings, db: withDeadlines(settings.db, { statementMs, clock: settings.clock }) }
}
