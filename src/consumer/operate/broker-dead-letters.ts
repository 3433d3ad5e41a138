/**
 * Drains a consumer's dead-letter subscription at the broker into its dead letters here, so that there is one place to look.
 *
 * Our own attempts end before the broker's do; what it moves there all the same was never settled by us: a process that kept
 * dying, a limit set too low. A message is acknowledged after its letter is committed. One whose effect is committed already
 * makes no letter, and one that comes twice makes one. One whose connection falls silent is given back, and recorded on another one.
 *
 * Beside a running consumer a drain that the broker refused at the start is started again for as long as the process lives: a grant takes
 * minutes until it is known everywhere, and some provision after they deploy.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { errorMessage, isWaybillError, WaybillError } from '../../core/errors.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { oneOf, resolve, wholeBetween } from '../../core/options.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import type { Verifier } from '../../core/event/signing.ts'
import { execute, one, type Database } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { answerGraceMs, withDeadlines } from '../../postgres/transaction/deadline.ts'
import type { Delivery, Transport } from '../../transport/port/transport.ts'
import { assertVerifier, type ConsumerSettings } from '../model/consumer-options.ts'
import { holdAggregate } from '../tables/dead-letter.sql.ts'
import { inboxTables, registerConsumer, type Scope } from '../tables/inbox.sql.ts'
import { makeDeadLetter, skipVersion } from '../failure/settle.ts'
import { openAll } from '../receive/subscriptions.ts'
import { isForeign, readEvent } from '../model/received-event.ts'
import { verified } from '../receive/verified.ts'
import { loop } from '../../core/service/loop.ts'
import type { Consumer } from '../consumer.ts'

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
      const receivers = await openAll(opening, stopping)
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
    else if (isOurs) await skipVersion(tx, scope, { event, message, sequential: true, closesGap: false })
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

/** After a refusal it is asked for again every minute. */
const backoff = { firstMs: 60_000, maxMs: 60_000, jitter: 'none' } as const

/**
 * The services to run beside a consumer, one for each topic of its dead letters at the broker; none where the broker has no such topics.
 * For a consumer to which nothing more is added.
 */
export function deadLetterDrains(draining: Pick<Consumer, 'settings' | 'routes'>): readonly Service[] {
  const { settings } = draining
  // One that stops at what fails should have no dead letters, but the broker may have taken some before it was told.
  const transport: Pick<Transport, 'receive' | 'deadLetterTopic'> = settings.transport
  return draining.routes().topics.flatMap((publishedTo) => {
    const topic = transport.deadLetterTopic?.(publishedTo, settings.name)
    return topic === undefined ? [] : drainOf(settings, topic, publishedTo)
  })
}

function drainOf(settings: ConsumerSettings, topic: string, publishedTo: string): Service {
  const { db, transport, name: consumer, schema, onDead, verify, verifier, signals, clock, random } = settings
  const common = { db, transport, consumer, schema, onDead, verify, verifier, signals, clock }
  const drain = drainBrokerDeadLetters({ ...common, topics: [topic], publishedTo })
  const isNews = createNews()
  const onError = (error: unknown): void => {
    // One that stops is provisioned without.
    const isExpected = settings.onPoison === 'stop' && isWaybillError(error, 'NOT_FOUND')
    if (isNews(error) && !isExpected) signals.emit('consumer.disturbed', { consumer, topic, error })
  }
  return {
    name: drain.name,
    run: async (life) => {
      const untilStopped = async (): Promise<'idle'> => {
        await drain.run(life)
        return 'idle'
      }
      await loop(untilStopped, life, { idleMs: () => 0, backoff, onError, clock, random })
    },
  }
}

/** Tells whether an error is another than the one before it: what stays as it is was reported already. */
function createNews(): (error: unknown) => boolean {
  let known: string | undefined
  return (error) => {
    const before = known
    known = isWaybillError(error) ? error.code : errorMessage(error)
    return known !== before
  }
}
