/**
 * The vocabulary of a history: what happened, as plain objects that survive JSON.
 *
 * Whoever sees something happen records it: a writer its commits, a broker its log, a consumer its effects, a client what it
 * asked and what it was told. `source` names the recorder. Only the order within one source means anything, so histories of
 * several processes are merged by putting one after the other, and no clock is ever compared.
 */

interface Recorded {
  /** Who recorded it. @default 'main' */
  readonly source?: string
}

/** A client sends a command. Every try is a call of its own; what they share is the request. */
export interface Invoke extends Recorded {
  readonly op: 'invoke'
  readonly call: string
  readonly request: string
  /** What was asked, as text, where calls of one request may differ in it. */
  readonly payload?: string
}

/**
 * What a client was told. `ok`: it took effect. `fail`: this call did not take effect, for certain. `info`: nobody knows;
 * a time-out, a cut connection and a dead server are always this. A call without an answer counts as `info`.
 */
export interface Answer extends Recorded {
  readonly op: 'answer'
  readonly call: string
  readonly request: string
  readonly outcome: 'ok' | 'fail' | 'info'
  readonly response?: string
  /** Another call took effect, and this one was told of it. @default false: it may have been this one */
  readonly isReplay?: boolean
}

/** A command's effect, as the owner's database has it. */
export interface Effect extends Recorded {
  readonly op: 'effect'
  readonly request: string
  /** The call that caused it, if that is known. */
  readonly call?: string
  readonly payload?: string
  readonly response?: string
}

/** The owner's transaction committed this event. */
export interface Commit extends Recorded {
  readonly op: 'commit'
  readonly event: string
  readonly aggregate: string
  readonly version: number
}

/** The broker stored a message. One source records a topic, in the broker's own order. */
export interface Log extends Recorded {
  readonly op: 'log'
  readonly event: string
  readonly aggregate: string
  readonly version: number
  readonly topic?: string
  readonly key?: string
  /** No order is promised for it, or none is known here: its stream is ordered by versions alone. @default false */
  readonly isUnordered?: boolean
  /** An empty message in the place of an event that an operator skipped: it has no effect. */
  readonly isVoid?: boolean
}

/** A consumer was handed a message. */
export interface Deliver extends Recorded {
  readonly op: 'deliver'
  readonly consumer: string
  readonly event: string
  readonly aggregate?: string
  readonly version?: number
}

/** A consumer's transaction committed the effect of an event. */
export interface Apply extends Recorded {
  readonly op: 'apply'
  readonly consumer: string
  readonly event: string
  /** @default 1 */
  readonly generation?: number
  readonly aggregate?: string
  readonly version?: number
  /** The projection's version after it. Recorded in the order of the commits: read it from the database, not from its callers. */
  readonly after?: number
}

/** An event need not be published (an operator dropped it), or need not have an effect at one consumer (a dead letter). */
export interface Excuse extends Recorded {
  readonly op: 'excuse'
  readonly event: string
  readonly consumer?: string
  readonly generation?: number
  readonly why: string
  /** Nobody has settled its dead letter: it has no effect there. What is recorded last counts. @default false */
  readonly isDead?: boolean
}

/** A consumer reads these aggregate types: at rest each of their events has had its effect there. */
export interface Follow extends Recorded {
  readonly op: 'follow'
  readonly consumer: string
  readonly generation?: number
  readonly types: readonly string[]
  /** Those of which it has a row for each aggregate that the owner has. @default those it has recorded a state of */
  readonly projects?: readonly string[]
}

/** Somebody looked at a projection's row, one look after the other. 0: there was none. */
export interface Observe extends Recorded {
  readonly op: 'observe'
  readonly consumer: string
  readonly generation?: number
  readonly aggregate: string
  readonly version: number
}

/** A reader was served. */
export interface Read extends Recorded {
  readonly op: 'read'
  readonly aggregate: string
  /** The version of the token it showed; without one it chose to see whatever is there. */
  readonly atLeast?: number
  /** The version it got; 0 if there was nothing. */
  readonly served: number
  readonly by: 'projection' | 'owner'
}

/** What an aggregate is at the end, as text; `null` if it is not there. Without a consumer it is the owner's word. */
export interface State extends Recorded {
  readonly op: 'state'
  readonly consumer?: string
  readonly aggregate: string
  readonly value: string | null
}

/** Faults are over, the system had time to recover, and nothing more will happen. The history may be judged as a whole. */
export interface Rest extends Recorded {
  readonly op: 'rest'
  /** What is still under way, counted by what it is: `{ 'outbox rows': 3 }`. */
  readonly left?: Readonly<Record<string, number>>
  /** How long it took to get here since the faults stopped, and how long it may, by one clock. */
  readonly tookMs?: number
  readonly limitMs?: number
}

export type HistoryEntry =
  | Invoke
  | Answer
  | Effect
  | Commit
  | Log
  | Deliver
  | Apply
  | Excuse
  | Follow
  | Observe
  | Read
  | State
  | Rest

const ops: Readonly<Record<HistoryEntry['op'], true>> = {
  invoke: true,
  answer: true,
  effect: true,
  commit: true,
  log: true,
  deliver: true,
  apply: true,
  excuse: true,
  follow: true,
  observe: true,
  read: true,
  state: true,
  rest: true,
}

/** Whether there are such entries: what comes out of a file may have been written by anybody. */
export function isKnownOp(op: string): boolean {
  return Object.hasOwn(ops, op)
}

/** An aggregate as histories name it: its type, a space, its id. */
export function aggregateName(type: string, id: string): string {
  return `${type} ${id}`
}

/** The type in an aggregate's name. Types have no spaces; ids may. */
export function aggregateTypeOf(aggregate: string): string {
  const space = aggregate.indexOf(' ')
  return space === -1 ? aggregate : aggregate.slice(0, space)
}
