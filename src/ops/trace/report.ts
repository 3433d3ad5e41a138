/**
 * What a trace is made from and what it says: plain data, for people, pages and programs.
 */
import type { Consumer } from '../../consumer/consumer.ts'
import type { Database } from '../../postgres/query/database.ts'

/** A service to look at: where its schema is, and what is known of its projections. */
export interface TracedService {
  readonly db: Database
  readonly schema: string
  /** @default what the schema says */
  readonly name?: string | undefined
  /** Its consumers: they know the tables whose versions are looked up. @default none */
  readonly consumers?: readonly Pick<Consumer, 'settings' | 'routes'>[]
}

export interface TraceOptions {
  /** An event's id, or a request id. */
  readonly id: string
  /** Whose request it is. Without it an id that looks like an event's is taken for one first. */
  readonly principal?: string | undefined
}

export interface TracedRequest {
  readonly service: string
  readonly principal: string
  readonly requestId: string
  readonly command: string
  readonly rejected: boolean
  readonly at: string
}

export interface TracedPublish {
  readonly at: string
  readonly attempts: number
  readonly relay: string
  readonly messageId: string
}

/** Where an event is that the broker has not confirmed. */
export interface TracedDispatch {
  readonly state: string
  readonly attempts: number
  readonly lane: number | undefined
  /** Who works its lane now. */
  readonly relay: string | undefined
  readonly nextRetryAt: string | undefined
  readonly parkedAt: string | undefined
  readonly error: string | undefined
}

export interface TracedProjection {
  readonly table: string
  /** `undefined` if it has no row of the aggregate. */
  readonly version: string | undefined
  readonly deleted: boolean
}

/**
 * What became of an event at a consumer. `passed`: it is not in the inbox, but the consumer is as far as this version.
 * `unseen`: the consumer reads the stream, and knows nothing of the event.
 */
export type DeliveryState =
  | 'applied'
  | 'passed'
  | 'stored'
  | 'retrying'
  | 'held'
  | 'waiting'
  | 'failing'
  | 'dead'
  | 'redriving'
  | 'discarded'
  | 'unseen'

export interface TracedDelivery {
  readonly service: string
  readonly consumer: string
  readonly state: DeliveryState
  /** When it got into this state, if that is known. */
  readonly at: string | undefined
  /** Failed attempts. */
  readonly attempts: number
  readonly error: string | undefined
  readonly nextAttemptAt: string | undefined
  readonly deadLetter: { readonly id: string; readonly reason: string } | undefined
  /** How far the consumer is with the aggregate. */
  readonly position: string | undefined
  readonly projections: readonly TracedProjection[]
}

export interface TracedEvent {
  readonly eventId: string
  /** What its owner's outbox has of it; `undefined` if it is in none that was looked at. */
  readonly recorded:
    | {
        readonly service: string
        readonly at: string
        readonly topic: string
        readonly aggregateType: string
        readonly aggregateId: string
        readonly version: string
        readonly eventType: string
      }
    | undefined
  /** The event that a consumer handled when it emitted this one. */
  readonly causedBy: { readonly eventId: string; readonly consumer: string } | undefined
  readonly dispatch: TracedDispatch | undefined
  readonly publishes: readonly TracedPublish[]
  readonly deliveries: readonly TracedDelivery[]
}

export interface Trace {
  readonly request: TracedRequest | undefined
  readonly events: readonly TracedEvent[]
  /** What could not be found or read, in sentences. */
  readonly notes: readonly string[]
}

/** A service with its name; what the parts of a trace work with. */
export interface NamedService extends TracedService {
  readonly name: string
}
