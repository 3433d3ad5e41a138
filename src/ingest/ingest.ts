/**
 * Takes facts from outside and hands them to the broker, or to the outbox.
 *
 *   validate ──▶ business key ──▶ event id ──▶ send ──▶ the broker's word ──▶ accepted
 *
 * Guarantee: `accepted` means that the broker has confirmed the fact. The event id follows from the business key, so a sender
 * that heard nothing, or anything else, sends the same fact again until it is accepted; readers remove the repeats. What is in
 * flight is bounded; beyond that, and while the broker is slow or away, facts are refused and nothing is kept.
 */
import type { BusinessKey, KeyPart } from '../core/event/id.ts'
import { isWaybillError } from '../core/errors.ts'
import { redactedMessage } from '../core/redact.ts'
import { refuseUnknown } from '../core/options.ts'
import type { PublishOutcome } from '../transport/port/transport.ts'
import { makeFact, nameFact, type AnyEventType, type Fact, type FactMaker } from './fact.ts'
import { refusalOf, refused, type FactOutcome, type Refused } from './fact-outcome.ts'
import { FactQueue } from './fact-queue.ts'
import { createFactSink } from './fact-sink.ts'
import { resolveIngestOptions, type IngestOptions, type IngestSettings } from './ingest-options.ts'

export interface AcceptOptions {
  /** Keeps the keys of different senders apart: it becomes the first part of the business key. @default all share one */
  readonly scope?: KeyPart | undefined
}

/** What is known of a business key. */
export interface FactStatus {
  readonly eventId: string
  /** `false`: it is on its way, or was never sent. `undefined`: this ingest was given nobody to ask. */
  readonly processed: boolean | undefined
  /** A fact with other content came under this key as well; the first one that was processed stays. */
  readonly conflict: boolean
}

export interface Ingest {
  readonly event: string
  readonly limits: { readonly maxBodyBytes: number; readonly maxFacts: number }
  /** Resolves once the broker has confirmed the fact, or with why it was not accepted. */
  accept(data: unknown, options?: AcceptOptions): Promise<FactOutcome>
  /** The same for many, each with an outcome of its own, in the order given. */
  acceptMany(list: readonly unknown[], options?: AcceptOptions): Promise<readonly FactOutcome[]>
  /** Why nothing is taken now; `undefined` if something is. */
  refusal(): Refused | undefined
  /** Whether the fact with this business key has been processed. INVALID_INPUT if it can be no key. */
  status(key: BusinessKey, options?: AcceptOptions): Promise<FactStatus>
  /** Takes no more, and resolves when everything in flight has its answer. Aborting the signal gives that up. */
  close(aborting?: AbortSignal): Promise<void>
}

export function createIngest<Type extends AnyEventType>(options: IngestOptions<Type>): Ingest {
  const settings = resolveIngestOptions(options)
  const { event, signals, maxBodyBytes, maxFacts, retryAfterMs } = settings
  const sink = createFactSink(settings.to, settings)
  const queue = new FactQueue(sink, settings)
  const maker = makerOf(settings, sink.maxBytes)
  const reportRefusal = (outcome: FactOutcome): FactOutcome => {
    if (outcome.status === 'refused') signals.emit('ingest.refused', { event: event.name, code: outcome.code })
    return outcome
  }
  const admit = async (data: unknown, scope?: KeyPart): Promise<FactOutcome> => {
    let fact: Fact
    try {
      fact = await makeFact(maker, data, scope)
    } catch (error) {
      return refusalOf(error, retryAfterMs)
    }
    return queue.refusal(fact.bytes) ?? outcomeOf(fact, await queue.push(fact), retryAfterMs)
  }
  const accept = async (data: unknown, scope: KeyPart | undefined): Promise<FactOutcome> =>
    reportRefusal(queue.refusal() ?? (await admit(data, scope)))
  return {
    event: event.name,
    limits: { maxBodyBytes, maxFacts },
    accept: async (data, given) => await accept(data, scopeOf('accept', given)),
    acceptMany: async (list, given) => {
      const scope = scopeOf('acceptMany', given)
      return await Promise.all(list.map((data) => accept(data, scope)))
    },
    refusal: () => queue.refusal(),
    status: async (key, given) => {
      const name = nameFact(event, key, scopeOf('status', given))
      const processed = await settings.processed?.(name)
      const conflict = processed === 'conflict'
      return { eventId: name.eventId, processed: conflict ? true : processed, conflict }
    },
    close: (aborting) => queue.close(aborting),
  }
}

function scopeOf(call: string, options: AcceptOptions = {}): KeyPart | undefined {
  refuseUnknown(`ingest.${call}`, options, ['scope'])
  return options.scope
}

function makerOf({ event, key, headers, clock }: IngestSettings, sinkBytes: number): FactMaker {
  return { event, key, headers, maxBytes: Math.min(event.stream.maxBytes, sinkBytes), nowMs: () => clock.nowMs() }
}

function outcomeOf({ eventId }: Fact, outcome: PublishOutcome, retryAfterMs: number): FactOutcome {
  switch (outcome.status) {
    case 'confirmed':
      return { status: 'accepted', eventId }
    case 'rejected':
      if (isWaybillError(outcome.error, 'FACT_CONFLICT')) return refused('FACT_CONFLICT', outcome.error.message)
      return refused('REJECTED', `The broker refuses this fact: ${redactedMessage(outcome.error)}`)
    case 'unavailable':
    case 'unroutable':
    case 'not-sent':
      return refused('UNAVAILABLE', 'The broker did not confirm the fact; it may have it. Send it again.', retryAfterMs)
  }
}
