/**
 * Where facts go: to a broker, or into an outbox. One outcome per fact, in the order given; sending never rejects.
 *
 * Into the outbox a batch goes in one transaction. A fact that was recorded before counts as confirmed, and one whose key was
 * recorded with other content is refused with FACT_CONFLICT; one that the database refuses is separated from its neighbours by halving. Whatever is unknown is `unavailable`: the sender repeats it, under the
 * same id. A database that does not answer is waited for until the signal aborts, and no longer; its connection is kept until the
 * server would have ended anything, and then closed, so that the pool does not run dry of connections that fell silent.
 */
import type { Clock } from '../core/service/clock.ts'
import { defaults } from '../core/defaults.ts'
import { isWaybillError, WaybillError } from '../core/errors.ts'
import { signedPublisher, type Signer } from '../core/event/signing.ts'
import { unlessAborted } from '../core/service/abort.ts'
import type { Database, Tx } from '../postgres/query/database.ts'
import { isRefusedValue } from '../postgres/query/sql-state.ts'
import { transaction, transactionOptions } from '../postgres/transaction/transaction.ts'
import { answerGraceMs, withDeadlines } from '../postgres/transaction/deadline.ts'
import type { Publisher, PublishOutcome } from '../transport/port/transport.ts'
import type { AnyEventType, Fact } from './fact.ts'

/** The part of an outbox that an ingest uses. `createOutbox` makes one. */
export interface FactOutbox {
  addMany(
    tx: Tx,
    events: readonly {
      readonly type: AnyEventType
      readonly aggregateId: string
      readonly data: unknown
      readonly options: {
        readonly id: string
        readonly version: number
        readonly headers: Readonly<Record<string, string>>
        readonly source: {
          readonly name: string
          readonly eventId: string
          readonly ordinal: number
          readonly contentHash: string
        }
      }
    }[],
  ): Promise<readonly { readonly id: string; readonly conflict: boolean }[]>
}

interface OutboxTarget {
  readonly db: Database
  readonly outbox: FactOutbox
}

/** A broker, or an outbox with its database. */
export type FactTarget = Publisher | OutboxTarget

export interface FactSink {
  readonly maxBytes: number
  send(facts: readonly Fact[], signal: AbortSignal): Promise<readonly PublishOutcome[]>
}

interface SinkParts {
  readonly event: AnyEventType
  readonly clock: Clock
  readonly signer?: Signer | undefined
}

export function createFactSink(target: FactTarget, parts: SinkParts): FactSink {
  return 'outbox' in target ? outboxSink(target, parts) : publisherSink(signedPublisher(target, parts.signer))
}

function publisherSink(publisher: Publisher): FactSink {
  return {
    maxBytes: publisher.maxBytes,
    send: (facts, signal) =>
      publisher.publish(
        facts.map(({ message }) => message),
        { signal, maySend: () => !signal.aborted },
      ),
  }
}

function outboxSink({ db, outbox }: OutboxTarget, { event, clock }: SinkParts): FactSink {
  const heard = withDeadlines(db, { statementMs: defaults.transaction.statementTimeoutMs + answerGraceMs, clock })
  const options = transactionOptions({ clock })
  /** Returns how each fact ended. */
  const record = async (facts: readonly Fact[]): Promise<readonly PublishOutcome[]> => {
    // The same key twice in one statement would collide with itself: the first one is recorded.
    const firsts = new Map<string, Fact>()
    for (const fact of facts) if (!firsts.has(fact.eventId)) firsts.set(fact.eventId, fact)
    const events = [...firsts.values()].map(({ eventId, aggregateId, data, headers, contentHash }) => {
      const source = { name: 'waybill.ingest', eventId, ordinal: 0, contentHash }
      return { type: event, aggregateId, data, options: { id: eventId, version: 1, headers, source } }
    })
    const added = await transaction(heard, async (tx) => await outbox.addMany(tx, events), options)
    const taken = new Set(added.filter(({ conflict }) => conflict).map(({ id }) => id))
    return facts.map((fact) => {
      const isFirst = firsts.get(fact.eventId)?.contentHash === fact.contentHash
      const isTaken = taken.has(fact.eventId)
      if (isFirst && !isTaken) return { status: 'confirmed', messageId: fact.eventId }
      // Its neighbour under the same key is not what was recorded before; it may be. Sent again, it is told.
      return !isFirst && isTaken ? { status: 'not-sent' } : conflict(fact)
    })
  }
  const send = async (facts: readonly Fact[], signal: AbortSignal): Promise<readonly PublishOutcome[]> => {
    if (signal.aborted) return facts.map(() => ({ status: 'not-sent' }))
    try {
      return await recordUnless(signal, record(facts))
    } catch (cause) {
      const error = cause instanceof Error ? cause : new Error(String(cause))
      if (!isRefusal(cause)) return facts.map(() => ({ status: 'unavailable', error }))
      if (facts.length === 1) return [{ status: 'rejected', error }]
      const middle = Math.ceil(facts.length / 2)
      return [...(await send(facts.slice(0, middle), signal)), ...(await send(facts.slice(middle), signal))]
    }
  }
  return { maxBytes: Number.MAX_SAFE_INTEGER, send }
}

/** The transaction cannot be called back: it may still commit, which is why its facts count as unknown. */
async function recordUnless<Recorded extends object>(signal: AbortSignal, recording: Promise<Recorded>): Promise<Recorded> {
  const done = await unlessAborted(recording, signal)
  if (done === undefined) throw new WaybillError('ABORTED', 'The outbox did not record the facts in time.')
  return done
}

function conflict({ aggregateId }: Fact): PublishOutcome {
  const error = new WaybillError(
    'FACT_CONFLICT',
    `A fact with the business key ${JSON.stringify(aggregateId.slice(0, 200))} was recorded before, with other content; that one stays. A correction is another fact: give it another key.`,
  )
  return { status: 'rejected', error }
}

/** Whether the outbox refuses a fact for what it is. */
function isRefusal(error: unknown): boolean {
  if (isRefusedValue(error)) return true
  return isWaybillError(error) && ['INVALID_INPUT', 'TOO_LARGE', 'VERSION_OUT_OF_ORDER'].includes(error.code)
}
