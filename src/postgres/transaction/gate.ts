/**
 * Whether a transaction takes work, and what it has under way. All ways to it ask the same gate: ours, the driver's and the ORM's.
 *
 *   open ──closure ends──▶ ending ──library is done──▶ over
 *
 * A closure that returns while something is under way is rolled back: what runs already would be committed, what follows it would be
 * refused, and half of a pair would stand. Nor may anything run behind the end: behind a ROLLBACK it would commit by itself, or in the
 * transaction of whoever has the connection next. While the transaction is ending, its library still sends what ends it.
 *
 * A scope is a part of a transaction that ends before it does: a handler of a batch, the `execute` of a command. What it leaves under
 * way is its own fault, and not that of its neighbours.
 */
import { AsyncLocalStorage } from 'node:async_hooks'

import { WaybillError } from '../../core/errors.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import { markOf, type Tx } from '../query/database.ts'
import { sql, type Statement } from '../query/sql.ts'

export interface Gate {
  state: 'open' | 'ending' | 'over'
  /** The closure threw, or was refused its COMMIT. */
  hasFailed: boolean
  /** Sent and not answered, or inside one of our functions and not settled. */
  readonly underWay: Set<Operation>
  /** Statements that wait until the one before them is answered. */
  readonly waiting: (() => void)[]
  /** A statement was sent and is not answered. */
  isBusy: boolean
  /** Why the transaction must not commit, although its closure returns. */
  spoilt?: { readonly error: unknown }
  readonly signals: SignalBus
  /** By which another connection can find it. */
  id?: { readonly xid: string } | undefined
  /** How long its ROLLBACK is waited for, where what is before it was interrupted. @default what the time-outs allow */
  endMs?: number
  /** What is to be done once it has committed. */
  readonly afterCommit: (() => void)[]
  /** Shuts the gate and asks the last question. There when the closure has returned and the library still runs its hooks. */
  beforeCommit?: () => Promise<void>
}

export interface Operation {
  /** Its text, or what stands for it. */
  readonly what: string
  readonly scope: Scope | undefined
  /** Of an operation of several statements, which was let through as a whole. */
  settled?: Promise<unknown>
  /** Closes what would otherwise stay open, such as a cursor. */
  close?: () => void
}

export interface Scope {
  readonly gate: Gate
  /** The scope around it, which may be of another transaction. */
  readonly outer: Scope | undefined
  /** Who is named in errors: "The handler". */
  readonly who: string
  /** What becomes of an error that is its fault. */
  readonly blame: (error: unknown) => unknown
  /** Looks at each statement; what it returns is why that is refused. */
  readonly watch: ((what: unknown) => WaybillError | undefined) | undefined
  state: 'open' | 'over' | 'failed'
}

/** Where a transaction's object stands: behind which gate, and in which scope of it. */
export interface Place {
  readonly gate: Gate
  readonly scope: Scope | undefined
  /** Of a scope: the transaction itself. */
  readonly base?: Tx
}

export interface ScopeOptions {
  readonly who: string
  /** @default the error itself */
  readonly blame?: (error: unknown) => unknown
  /** @default that of the scope around it */
  readonly watch?: Scope['watch']
}

/** Undefined for what was marked without a gate, such as a test's. */
export function placeOf(tx: Tx): Place | undefined {
  return markOf(tx) as Place | undefined
}

/** Who calls: the driver's own object is the same for all scopes of a transaction. */
const scopes = new AsyncLocalStorage<Scope>()

export function openGate(signals: SignalBus = defaultSignals): Gate {
  return { state: 'open', hasFailed: false, underWay: new Set(), waiting: [], isBusy: false, signals, afterCommit: [] }
}

/** Runs `call`, and what comes of it, in the name of a scope. */
export function inScope<Result>(scope: Scope, call: () => Result): Result {
  return scopes.run(scope, call)
}

export function openScope(gate: Gate, { who, blame = (error) => error, watch = callerOf(gate)?.watch }: ScopeOptions): Scope {
  return { gate, outer: scopes.getStore(), who, blame, watch, state: 'open' }
}

function callerOf(gate: Gate): Scope | undefined {
  let scope = scopes.getStore()
  while (scope !== undefined && scope.gate !== gate) scope = scope.outer
  return scope
}

/** Why nothing of this text may be sent now, told to whoever listens. Undefined: it may. */
export function refusal(gate: Gate, what: unknown): WaybillError | undefined {
  const scope = callerOf(gate)
  const isLetThrough = letsThrough(gate, what)
  if (isLetThrough && (scope === undefined || scope.state === 'open')) return scope?.watch?.(what)
  const error = endedTransaction()
  // What a scope sends behind its end belonged to its effect, which is not committed without it.
  if (isLetThrough && scope?.state === 'over') gate.spoilt ??= { error: scope.blame(stillUnderWay(scope.who, [nameOf(what)])) }
  gate.signals.emit('transaction.used-after-end', { what: nameOf(what), rolledBack: gate.hasFailed || scope?.state === 'failed' })
  return error
}

/** Whether a statement of this text may be sent now. */
function letsThrough({ state }: Gate, text: unknown): boolean {
  return state === 'open' || (state === 'ending' && (text === lastQuestion || isEnd(text)))
}

/** Counts an operation from here until `leave`. */
export function enter(gate: Gate, what: unknown): Operation {
  const operation: Operation = { what: typeof what === 'string' ? what : 'a statement', scope: callerOf(gate) }
  gate.underWay.add(operation)
  return operation
}

export function leave({ underWay }: Gate, operation: Operation): void {
  underWay.delete(operation)
}

/** Refuses work or counts it until it has settled. */
export async function track<Result>(gate: Gate, what: string, work: () => PromiseLike<Result>): Promise<Result> {
  const refused = refusal(gate, what)
  if (refused !== undefined) throw refused
  const operation = enter(gate, what)
  try {
    return await work()
  } finally {
    leave(gate, operation)
  }
}

/** Runs `start` as soon as no statement is under way; it hands on with `passOn`. node-postgres 9 takes no second one before the answer. */
export function inTurn(gate: Gate, start: () => void): void {
  if (gate.isBusy) gate.waiting.push(AsyncLocalStorage.bind(start))
  else {
    gate.isBusy = true
    start()
  }
}

export function passOn(gate: Gate): void {
  const next = gate.waiting.shift()
  if (next === undefined) gate.isBusy = false
  else next()
}

/** Sends one statement after the other. One that waited may come too late. */
export async function inLine<Answer>(gate: Gate, text: unknown, send: () => PromiseLike<Answer>): Promise<Answer> {
  const refused = refusal(gate, text)
  if (refused !== undefined) throw refused
  const operation = enter(gate, text)
  try {
    if (gate.isBusy) {
      await new Promise<void>((resolve) => void gate.waiting.push(resolve))
      const late = refusal(gate, text)
      if (late !== undefined) throw late
    } else gate.isBusy = true
    return await send()
  } finally {
    leave(gate, operation)
    passOn(gate)
  }
}

/** Throws if the closure that has just returned left something under way. */
export function assertSettled({ spoilt, underWay }: Gate): void {
  if (spoilt !== undefined) throw spoilt.error
  if (underWay.size > 0) throw stillUnderWay('The closure', namesOf([...underWay]))
}

/** Ends a scope that has returned; throws if it left something under way. */
export function endScope(scope: Scope): void {
  scope.state = 'over'
  const { underWay } = scope.gate
  const left = underWay.size === 0 ? [] : [...underWay].filter((each) => each.scope === scope)
  if (left.length > 0) throw stillUnderWay(scope.who, namesOf(left))
}

/** The closure has ended: nothing more is let through, and what was let through comes to its end. */
export async function shut(gate: Gate): Promise<void> {
  if (gate.state === 'open') gate.state = 'ending'
  const settling = [...gate.underWay].flatMap(({ settled, close }) => {
    close?.()
    return settled ?? []
  })
  if (settling.length > 0) await Promise.allSettled(settling)
}

/** What libraries send to end a transaction. */
export function isEnd(text: unknown): boolean {
  return typeof text === 'string' && /^(?:commit|rollback);?$/i.test(text)
}

/** The sentence for what comes after the end. */
export function endedTransaction(): WaybillError {
  return new WaybillError(
    'NOT_A_TRANSACTION',
    'This transaction has ended; the statement was not run. Is an await missing inside the closure?',
  )
}

/** The sentence for a closure that returned too early. */
export function stillUnderWay(who: string, what: readonly string[]): WaybillError {
  const [shown, more] = [what.slice(0, 3).join('; '), what.length - 3]
  const all = more > 0 ? `${shown}; and ${more} more` : shown
  return new WaybillError(
    'NOT_A_TRANSACTION',
    `${who} returned while ${all} ${what.length > 1 ? 'were' : 'was'} still under way, so everything was rolled back. Is an await missing inside?`,
  )
}

/** A transaction of the library's own inside ours. */
export const nestedTransaction = 'a transaction nested in it'

/** The sentence for a library's own nested transaction that is still open. */
export function nestedUnderWay(): WaybillError {
  return stillUnderWay('The closure', [nestedTransaction])
}

function namesOf(operations: readonly Operation[]): string[] {
  return [...new Set(operations.map(({ what }) => nameOf(what)))]
}

/** The beginning of a statement, on one line. */
function nameOf(what: unknown): string {
  if (typeof what !== 'string') return 'a statement'
  const line = what.slice(0, 400).replaceAll(/\s+/g, ' ').trim()
  return line.length > 60 ? `${line.slice(0, 60)}…` : line
}

/** Which transaction the connection is in, and what it may do: the last thing that is asked before COMMIT. */
export function currentTransaction(): Statement<{ xid: string | null; read_only: string }> {
  return sql`select pg_current_xact_id_if_assigned()::text as xid, current_setting('transaction_read_only') as read_only`
}

const lastQuestion = currentTransaction().text
