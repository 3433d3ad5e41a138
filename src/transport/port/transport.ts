/**
 * The port between us and a broker. Everything that relay and consumer expect of one is said here, and every transport
 * passes the same contract suite.
 *
 * Publishing. Messages that share an ordering key are sent in the order given, with one unacknowledged request per key at
 * a time; the first that is not confirmed stops its key for this call. Each message gets an outcome of its own:
 *
 *   confirmed    the broker has it, and said so
 *   rejected     the broker refuses this very message, and would refuse it again
 *   unroutable   its topic is missing, closed to this client or unusable, until somebody changes that; other topics may be fine
 *   unavailable  outage, time-out or anything unknown: it may or may not be there
 *   not-sent     it was not tried, because an earlier one of its key failed or time ran out
 *
 * Receiving. Deliveries of one ordering key are handed over in order, and while one of them is in hand the key's next go
 * to the same receiver only. A delivery is the consumer's until it is settled by `ack` or `nack`; the transport keeps its
 * lease alive meanwhile and hands out no more than the bounds allow.
 */

/** A message on its way out. */
export interface OutgoingMessage {
  readonly topic: string
  /** Messages with the same key keep their order; `undefined` asks for none. */
  readonly orderingKey: string | undefined
  readonly attributes: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

export type PublishOutcome =
  | { readonly status: 'confirmed'; readonly messageId: string }
  | { readonly status: 'rejected'; readonly error: Error }
  | { readonly status: 'unroutable'; readonly error: Error }
  | { readonly status: 'unavailable'; readonly error: Error }
  | { readonly status: 'not-sent' }

export interface PublishOptions {
  /** Aborting it ends the call soon; what was not confirmed by then is `unavailable` or `not-sent`. */
  readonly signal: AbortSignal
  /** Asked before every request: once it says no, nothing more may be sent. It knows the sender's lease and deadline. */
  readonly maySend: () => boolean
}

export interface Publisher {
  /** The largest message, body, attributes and ordering key together, that the broker takes. */
  readonly maxBytes: number
  /** One outcome per message, in the order given. Never rejects. */
  publish(messages: readonly OutgoingMessage[], options: PublishOptions): Promise<readonly PublishOutcome[]>
}

/** A message that came in. */
export interface IncomingMessage {
  /** The broker's id: good for logs, not for dedupe. A message published twice has two. */
  readonly messageId: string
  readonly topic: string
  readonly orderingKey: string | undefined
  readonly attributes: Readonly<Record<string, string>>
  readonly body: Uint8Array
  readonly publishedAtMs: number
  /** How often the broker has delivered it, counting this one; `undefined` if the broker does not count. */
  readonly deliveryAttempt: number | undefined
  /** Where it stands in a partitioned log; other brokers have no such place. */
  readonly position?: { readonly partition: string; readonly offset: bigint } | undefined
}

/** Whether the broker confirmed the ack. `unconfirmed` is harmless: the message may simply come again. */
export type AckOutcome = 'confirmed' | 'unconfirmed' | 'lost'

export interface Delivery {
  readonly message: IncomingMessage
  /** The effect is committed: the broker may forget the message. Never rejects. */
  ack(): Promise<AckOutcome>
  /**
   * Deliver it again, and what follows it under the same key, not before `delayMs`. Later deliveries of that key that are
   * in hand are lost with it: they come again behind it. Never rejects.
   */
  nack(delayMs?: number): Promise<void>
  /**
   * For partitioned logs, whose reader keeps their order: it failed, and the reader keeps it for later, with what is behind it. Until
   * it is settled, nothing more of its partition is handed over, and what is in hand of that takes no room from other partitions.
   */
  stall?(): void
  /** Aborts when the transport lost this delivery (lease expired, partition revoked): settling it is then without effect. */
  readonly lost: AbortSignal
  /** Acknowledges many deliveries for the price of one, if the transport has such a thing. */
  readonly acker?: Acker
}

/** Takes acks of deliveries that name it, together. */
export interface Acker {
  /** Like `ack` of each of them, all at once; tells what became of them, in any order. Never rejects. */
  ackAll(deliveries: readonly Delivery[]): Promise<readonly AckOutcome[]>
}

export interface ReceiveOptions {
  readonly topic: string
  /** The consumer's name: instances that share it share the messages. */
  readonly consumer: string
  /** Unsettled deliveries at most; a partition that stands still is bounded by itself. */
  readonly maxMessages: number
  /** Bytes of unsettled deliveries at most (one larger message is still delivered alone). */
  readonly maxBytes: number
  /** Must not throw; where it does, `onError` is told, and the delivery is nacked. */
  readonly onDelivery: (delivery: Delivery) => void
  /** Told when receiving is disturbed; the transport goes on trying. */
  readonly onError: (error: Error) => void
  /** The consumer never gives up a message: `onError` is told of a broker that would, after so many deliveries. @default false */
  readonly givesNothingUp?: boolean | undefined
  /**
   * For partitioned logs, whose reader may keep its own offsets: asked whenever partitions are assigned, before anything of
   * them is read. What it returns for a partition wins over what the broker remembers; asked again before it has answered, the first
   * answer counts no more. Offsets are of one topic: `topicId` tells it from others that had or get its name, and is undefined where
   * the broker has no such thing.
   */
  readonly resumeFrom?:
    | ((partitions: readonly string[], topicId: string | undefined) => Promise<ReadonlyMap<string, bigint | 'earliest'>>)
    | undefined
  /**
   * For partitioned logs: told of partitions that have something and are read from their beginning, because the broker remembers no
   * offset of this consumer in the whole topic. So a new consumer begins, and one whose offsets the broker has forgotten.
   */
  readonly onBeginning?: ((partitions: readonly string[]) => void) | undefined
}

export interface Receiver {
  /** Hands out no new deliveries, waits until those in hand are settled or `aborting` aborts, then disconnects. */
  close(aborting?: AbortSignal): Promise<void>
}

/** Where to start reading again: a moment, or the beginning of what is retained. */
export type SeekTarget = { readonly sinceMs: number } | 'earliest'

/** What a subscription had not settled when the snapshot was taken, and everything since. */
export interface SnapshotTarget {
  readonly snapshot: string
}

export interface Transport extends Publisher {
  readonly name: string
  /** Resolves when the broker has accepted the subscription and deliveries can come. */
  receive(options: ReceiveOptions): Promise<Receiver>
  /**
   * Moves a consumer's position: everything retained since the target is delivered, again or for the first time. What is older
   * counts as settled, whether it is or not.
   */
  seek(options: { readonly topic: string; readonly consumer: string; readonly to: SeekTarget }): Promise<void>
  /** Moves a consumer's position to a snapshot, by its name, of the same topic. Left out where the broker has none. */
  seekToSnapshot?(options: SnapshotTarget & { readonly topic: string; readonly consumer: string }): Promise<void>
  /**
   * Delivers again what is retained since a moment, and skips nothing: what is older and not settled still comes, in order. Left
   * out where the broker cannot tell what is settled.
   */
  rewind?(options: { readonly topic: string; readonly consumer: string; readonly sinceMs: number }): Promise<void>
  /** The topic to which the broker moves what a consumer never settled, read by that consumer. Left out where it moves nothing. */
  deadLetterTopic?(topic: string, consumer: string): string
  /** Removes a consumer's subscription to a topic, if there is one. Left out where the broker's operators make and remove them. */
  unsubscribe?(topic: string, consumer: string): Promise<void>
  /** Ends all receivers and connections; deliveries still in hand are given up and come again. Publishes under way are awaited. */
  close(): Promise<void>
}
