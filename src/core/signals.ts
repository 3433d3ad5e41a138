/**
 * Everything this package reports, as one typed catalogue. Logs, metrics and traces are subscribers, never callers.
 *
 * Emitting costs next to nothing when nobody listens. A subscriber that throws or rejects is reported to the others and
 * never disturbs the work it watches. Each signal is also published on `node:diagnostics_channel` as `waybill:<name>`;
 * there Node's own rule holds: a subscriber that throws raises an uncaught exception.
 */
import { channel, type Channel } from 'node:diagnostics_channel'

export interface Signals {
  /** A closure is run again, because the database refused to serialise it or chose it as a deadlock's victim. */
  'transaction.retried': { readonly attempt: number; readonly sqlState: string; readonly delayMs: number }
  /** The connection broke during COMMIT; `outcome` is what looking found. */
  'transaction.unknown': { readonly outcome: 'committed' | 'rolled-back' | 'unknown'; readonly xid: string | undefined }

  /** Something that was to happen after a commit threw; the commit stands. */
  'transaction.hook-failed': { readonly error: unknown }

  /**
   * What came after a transaction, or its handler or `execute`, had ended was refused: a statement, an event, or what else `what`
   * says. Unless it was `rolledBack`, the rest is committed without it, so an await is missing.
   */
  'transaction.used-after-end': { readonly what: string; readonly rolledBack: boolean }

  /** An idle connection of a pool broke; the pool opens another at the next use. */
  'database.idle-connection-lost': { readonly error: unknown }

  /** A service of `run` was started. */
  'service.started': { readonly service: string }
  /** A service of `run` has ended; with `error` if it could not go on. */
  'service.stopped': { readonly service: string; readonly error?: unknown }
  /** A pass threw; it is tried again after `delayMs`. */
  'service.failed': { readonly service: string; readonly error: unknown; readonly failures: number; readonly delayMs: number }

  /** A worker took lanes. */
  'lanes.acquired': { readonly worker: string; readonly lanes: readonly number[] }
  /** A worker gave lanes back. */
  'lanes.released': { readonly worker: string; readonly lanes: readonly number[] }
  /** A worker lost lanes: they were another's when it looked, or somebody kept their rows locked. */
  'lanes.lost': { readonly worker: string; readonly lanes: readonly number[] }

  /** The broker confirmed events. `delaysMs` are the times from occurrence to now, one per event. */
  'relay.published': {
    readonly relay: string
    readonly count: number
    readonly durationMs: number
    readonly delaysMs: readonly number[]
  }
  /** An event failed and stops its key; it is tried again after `delayMs`. */
  'relay.stopped': {
    readonly relay: string
    readonly eventId: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly attempts: number
    readonly delayMs: number
    readonly error: string
  }
  /** An event gave up and waits for an operator; its key stays held. */
  'relay.parked': {
    readonly relay: string
    readonly eventId: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly attempts: number
    readonly error: string
  }
  /** A dispatch row without its event: something deleted an unpublished event. */
  'relay.event-missing': { readonly relay: string; readonly eventId: string }
  /** The broker is out of reach, being probed, or back; or the relay that said so ended, which is `closed` too. `outbox` is the schema of the relay's outbox. */
  'relay.breaker': {
    readonly relay: string
    readonly outbox: string
    readonly state: 'closed' | 'open' | 'probing'
    readonly error?: string
  }
  /** What waits, counted in every state, in each up to 100,000; sent by the relay that holds lane 0, and by backlog reports. `null`: not for this role to see. */
  'relay.backlog': {
    readonly outbox: string
    readonly due: number
    readonly retrying: number
    readonly held: number
    readonly parked: number
    readonly oldestAgeMs: number
    readonly oldestDueAgeMs: number
    readonly highestAttempts: number
    readonly unownedLanes: number
    readonly oldestSnapshotAgeMs: number | null
  }
  /** Retention removed rows whose time was over. */
  'outbox.retained': { readonly events: number; readonly receipts: number; readonly sources: number }
  /** A commit could not be announced to other processes; their relays find the events by polling. */
  'outbox.notify-failed': { readonly channel: string; readonly error: unknown }
  /** A backfill committed a batch. `done` of `total` are rows or bytes; `etaMs` is unknown until there is a rate. */
  'backfill.progress': {
    readonly backfill: string
    readonly operation: string
    readonly rows: number
    readonly emitted: number
    readonly skipped: number
    readonly done: number
    readonly total: number | undefined
    readonly unit: 'rows' | 'bytes'
    readonly rowsPerSecond: number
    readonly etaMs: number | undefined
  }
  /** A backfill holds back: the relay has more to send than the limit, or somebody holds an aggregate of the batch. */
  'backfill.waiting': { readonly backfill: string; readonly operation: string; readonly reason: 'backlog' | 'lock' }
  /** A backfill is complete. */
  'backfill.finished': {
    readonly backfill: string
    readonly operation: string
    readonly rows: number
    readonly emitted: number
    readonly skipped: number
  }
  /** Payloads of a claim check were removed because their time was over. */
  'blobs.expired': { readonly count: number }

  /** A LISTEN connection works: a notification that was sent elsewhere arrived. */
  'listen.ready': { readonly channel: string }
  /** A LISTEN connection broke, could not be made, or hears nothing. It is tried again; polling goes on. */
  'listen.failed': { readonly channel: string; readonly error: unknown; readonly delayMs: number }

  /** A batch committed. `lagMs` is the age of its oldest event, from its occurrence to now; `ackMs` the time that acks took. */
  'consumer.applied': {
    readonly consumer: string
    readonly count: number
    readonly duplicates: number
    readonly durationMs: number
    readonly ackMs: number
    readonly lagMs: number
  }
  /** A handler returned, or failed. */
  'consumer.handled': {
    readonly consumer: string
    readonly eventType: string
    readonly durationMs: number
    readonly failed: boolean
  }
  /** What is in hand: received, and neither acknowledged, given back nor stored. Told every few seconds. */
  'consumer.in-flight': { readonly consumer: string; readonly messages: number; readonly oldestMs: number }
  /** Stored messages were worked through. `lagMs` is the longest time that one of them had been stored. */
  'consumer.processed': { readonly consumer: string; readonly count: number; readonly lagMs: number }
  /** Acks that the broker did not confirm: those messages come again and are recognised. */
  'consumer.ack-unconfirmed': { readonly consumer: string; readonly count: number }
  /** Events of a stream that the consumer does not read came over a topic of its own; told once a stream. */
  'consumer.ignored': { readonly consumer: string; readonly topic: string; readonly aggregateType: string }
  /**
   * A message was refused because it is `unsigned`, signed by an `unknown_key`, or `forged`: it took no effect and is acknowledged. Its
   * id and type are what it says.
   */
  'consumer.refused': {
    readonly consumer: string
    readonly topic: string
    readonly reason: 'unsigned' | 'unknown_key' | 'forged'
    readonly messageId: string
    readonly eventId: string
    readonly eventType: string
  }
  /** An unsigned message was let in by `verify: 'accept'`. */
  'consumer.unsigned': { readonly consumer: string; readonly topic: string }
  /** An event came under the id of another one that was applied before, with other content: the first one stays. Facts have their own signal. */
  'consumer.id-reused': {
    readonly consumer: string
    readonly eventId: string
    readonly eventType: string
    readonly aggregateType: string
    readonly aggregateId: string
  }
  /**
   * The version of an event is further ahead of the last one that was seen of its aggregate, `from`, than `maxVersionJump` allows. It was
   * applied all the same; with `onVersionJump: 'dead-letter'` it is a dead letter instead, and told as one.
   */
  'consumer.version-jumped': {
    readonly consumer: string
    readonly eventId: string
    readonly eventType: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly version: string
    readonly from: string
  }
  /** A fact came under the business key of another one that was applied before, with other content: the first one stays. */
  'consumer.fact-conflict': {
    readonly consumer: string
    readonly eventId: string
    readonly eventType: string
    readonly aggregateType: string
    readonly aggregateId: string
  }
  /**
   * An event of a stream or type that this instance does not know, and a running instance of another version does, is stored for that
   * one.
   */
  'consumer.put-aside': {
    readonly consumer: string
    readonly eventId: string
    readonly eventType: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly version: string
  }
  /** An event came before its predecessor, or behind a dead letter, and is stored until its turn. */
  'consumer.waiting': {
    readonly consumer: string
    readonly eventId: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly version: string
  }
  /** An event has a version of its aggregate that another event has taken: its owner gave that version twice. Told once an event. */
  'consumer.forked': {
    readonly consumer: string
    readonly eventId: string
    readonly eventType: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly version: string
  }
  /**
   * What is stored until its turn, and the dead letters that nobody has settled. `oldestMs` above the alert threshold means a gap
   * that nobody closes; what an operator paused does not age.
   */
  'consumer.backlog': {
    readonly consumer: string
    readonly messages: number
    readonly aggregates: number
    readonly held: number
    readonly oldestMs: number
    readonly dead: number
    readonly alert: boolean
  }
  /** An event failed and is tried again after `delayMs`. */
  'consumer.failed': {
    readonly consumer: string
    readonly eventId: string
    readonly messageId: string
    readonly orderingKey: string | undefined
    readonly eventType: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly attempts: number
    readonly delayMs: number
    readonly error: string
  }
  /** An event was given up: a dead letter. `held` if later ones of its aggregate wait for an operator. */
  'consumer.dead': {
    readonly consumer: string
    readonly eventId: string
    readonly messageId: string
    readonly orderingKey: string | undefined
    readonly eventType: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly reason: string
    readonly attempts: number
    readonly held: boolean
    readonly error: string
  }
  /** An event used up its attempts, and its key stands still until somebody acts. */
  'consumer.stopped': {
    readonly consumer: string
    readonly eventId: string
    readonly messageId: string
    readonly orderingKey: string | undefined
    readonly eventType: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly attempts: number
    readonly error: string
  }
  /** A batch met an outage or a lock that was not given up in time; nobody is charged, and it is tried again. */
  'consumer.retried': { readonly consumer: string; readonly count: number; readonly delayMs: number; readonly error: string }
  /** Receiving is disturbed; the transport goes on trying. */
  'consumer.disturbed': { readonly consumer: string; readonly topic: string; readonly error: unknown }
  /** An operator paused or resumed the consumer. */
  'consumer.paused': { readonly consumer: string; readonly paused: boolean }

  /** How many messages of a partition a consumer has not settled yet; sent now and then by whoever reads it. */
  'transport.lag': {
    readonly transport: string
    readonly topic: string
    readonly consumer: string
    readonly partition: string
    readonly messages: number
  }

  /** Inbox rows, attempts, settled dead letters and archived messages were removed because their time was over. */
  'inbox.retained': {
    readonly inbox: number
    readonly attempts: number
    readonly deadLetters: number
    readonly archive: number
  }
  /**
   * The database's clock has gained time that no clean-up witnessed: it was set, another server took over, or no clean-up ran. Rows
   * from before that are kept for longer by as much.
   */
  'retention.clock-leapt': { readonly schema: string; readonly byMs: number }
  /** The inbox forgets before the broker does: what is delivered again in between is applied twice. */
  'inbox.memory-short': { readonly inboxMs: number; readonly brokerMs: number }

  /** The broker confirmed facts that came over an ingest, in one call. */
  'ingest.accepted': { readonly event: string; readonly count: number; readonly durationMs: number }
  /** A fact was not accepted. OVERLOADED: too much in flight, or a slow broker; UNAVAILABLE: the broker did not confirm. */
  'ingest.refused': { readonly event: string; readonly code: string }
  /** The broker of an ingest is out of reach, being probed, or back. */
  'ingest.breaker': { readonly event: string; readonly state: 'closed' | 'open' | 'probing' }

  /** A command took effect. */
  'command.executed': { readonly command: string; readonly durationMs: number; readonly attempts: number }
  /** A repeat was answered with the first response: from the cache or from the marker. */
  'command.replayed': { readonly command: string; readonly from: 'cache' | 'marker' }
  /** A command was refused by its own rules; `replayed` if that was decided before. */
  'command.rejected': { readonly command: string; readonly reason: string; readonly replayed: boolean }
  /** A command ended without effect, or repeated one whose response was not kept. */
  'command.failed': { readonly command: string; readonly code: string }
  /** A command waits in line: too many of its principal, or of an aggregate of it, are under way. `waiting` counts all lines. */
  'command.queued': {
    readonly command: string
    readonly principal: string
    readonly at: 'aggregate' | 'principal'
    readonly waiting: number
  }
  /** A command that waited in line got its place. */
  'command.admitted': {
    readonly command: string
    readonly principal: string
    readonly at: 'aggregate' | 'principal'
    readonly waiting: number
    readonly waitedMs: number
  }
  /** A command got no place: its line was full, it waited for too long, or its caller gave up. */
  'command.refused': {
    readonly command: string
    readonly principal: string
    readonly at: 'aggregate' | 'principal'
    readonly waiting: number
    readonly waitedMs: number
    readonly reason: 'full' | 'late' | 'aborted'
  }
  /** A call of a command threw and committed nothing: its own code failed, its events could not be added, or the database refused. */
  'command.threw': { readonly command: string; readonly error: unknown }
  /** An attempt lost a race and is made again. */
  'command.retried': { readonly command: string; readonly attempt: number; readonly reason: string; readonly delayMs: number }
  /** A response, or a rejection with its details, is too large to be kept; repeats are told that the command was committed, or the reason alone. */
  'command.response-dropped': { readonly command: string; readonly bytes: number; readonly maxBytes: number }
  /** A command came without a request id; `refused` where ids are required. */
  'command.request-id-missing': { readonly command: string; readonly client: string; readonly refused: boolean }
  /** Request ids were made mandatory while commands still come without them. */
  'command.required-too-early': { readonly command: string; readonly client: string; readonly perMinute: number }
  /** The cache failed or took too long; the command went on without it. */
  'command.cache-failed': { readonly operation: 'claim' | 'renew' | 'complete' | 'release'; readonly error: unknown }
  /** The cache is shared and has no `cacheSecret`: who can write to it can tell clients of successes that never were. Once per process. */
  'command.cache-unsealed': { readonly option: 'cacheSecret' }
  /** The cache is left out, being tried, or back. */
  'command.cache-breaker': { readonly state: 'closed' | 'open' | 'probing' }
  /** A clean-up pass is done. `lagMs` is how long the oldest marker has been due for deletion. */
  'command.cleaned': { readonly deleted: number; readonly lagMs: number; readonly durationMs: number }
  /** Clean-up does not keep up: its lag is above the alert threshold. */
  'command.cleanup-lagging': { readonly lagMs: number; readonly alertLagMs: number }

  /** A subscriber of signals threw. */
  'signals.failed': { readonly signal: string; readonly error: unknown }
}

export type SignalName = keyof Signals
export type Emit = <Name extends SignalName>(name: Name, event: Signals[Name]) => void
export type Listener<Name extends SignalName> = (event: Signals[Name], name: Name) => void

export interface SignalBus {
  readonly emit: Emit
  /** Calls `listener` for each signal of that name; returns the function that ends it. */
  on<Name extends SignalName>(name: Name, listener: Listener<Name>): () => void
  /** Calls `listener` for every signal, whatever its name. */
  onAny(listener: (event: Signals[SignalName], name: SignalName) => void): () => void
}

type AnyListener = (event: never, name: never) => unknown

/** A bus of its own: components that share one are observed together. */
export function createSignals(): SignalBus {
  const named = new Map<SignalName, readonly AnyListener[]>()
  const channels = new Map<SignalName, Channel>()
  // Lists are replaced, never changed: who comes or goes during an emit does not disturb it.
  let any: readonly AnyListener[] = []

  const call = (listeners: readonly AnyListener[], name: SignalName, event: unknown): void => {
    const failed = (error: unknown): void => {
      if (name !== 'signals.failed') emit('signals.failed', { signal: name, error })
    }
    for (const listener of listeners) {
      try {
        const result = listener(event as never, name as never)
        if (result instanceof Promise) result.catch(failed)
      } catch (error) {
        failed(error)
      }
    }
  }
  const emit: Emit = (name, event) => {
    const listeners = named.get(name)
    if (listeners !== undefined) call(listeners, name, event)
    if (any.length > 0) call(any, name, event)
    const diagnostics = channels.get(name) ?? remember(channels, name)
    if (diagnostics.hasSubscribers) diagnostics.publish(event)
  }
  return {
    emit,
    on: (name, listener) => {
      // A listener of its own for each call, so that ending one subscription leaves its twin alone.
      const own: AnyListener = (event) => listener(event, name)
      named.set(name, [...(named.get(name) ?? []), own])
      return () => void named.set(name, without(named.get(name) ?? [], own))
    },
    onAny: (listener) => {
      const own: AnyListener = (event, name) => listener(event, name)
      any = [...any, own]
      return () => void (any = without(any, own))
    },
  }
}

/** For components that were given no bus: reports on `node:diagnostics_channel`, and to the commands of the CLI. */
export const defaultSignals: SignalBus = createSignals()

function without(listeners: readonly AnyListener[], gone: AnyListener): readonly AnyListener[] {
  return listeners.filter((listener) => listener !== gone)
}

function remember(channels: Map<SignalName, Channel>, name: SignalName): Channel {
  const created = channel(`waybill:${name}`)
  channels.set(name, created)
  return created
}
