/**
 * Places for commands: one aggregate, or one principal, never takes the connections that the others need.
 *
 *   request ──▶ principal's place ──▶ a place of each aggregate, in their order ──▶ connection
 *
 * At most `maxPerAggregate` commands of an aggregate and `maxPerPrincipal` of a principal hold or await a connection; the others
 * wait in line without one. A line is bounded, and so is the time in lines: what is beyond them is OVERLOADED. A command that waits
 * for an aggregate lends its principal's place to others meanwhile, so a hot aggregate stops nothing else of its principal.
 * Lines are first come, first served; aggregates are entered in one order, so two commands never wait for each other. A repeat of a
 * request that this process runs waits for it without any place, as long as it would for the marker. A key without commands costs
 * no memory.
 */
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import type { SignalBus, Signals } from '../../core/signals.ts'
import { chainOf } from '../../postgres/query/sql-state.ts'
import { aggregateKey, type Aggregate } from '../model/aggregate.ts'

export interface GateOptions {
  readonly maxPerAggregate: number
  readonly maxPerPrincipal: number
  /** Commands in the line of one aggregate, and in that of one principal, at most. */
  readonly maxQueued: number
  /** The longest that one command waits in all its lines together. */
  readonly queueTimeoutMs: number
  /** The longest that a repeat waits for the run of its request. */
  readonly markerLockMs: number
  readonly signals: SignalBus
  readonly clock: Clock
}

/** A command on its way through the gate, which it may pass several times. */
export interface Passage {
  readonly command: string
  readonly principal: string
  readonly requestId: string | undefined
  /** Ends the wait in line. */
  readonly signal: AbortSignal | undefined
  /** How long it has waited in lines. */
  waitedMs: number
}

export interface CommandGate {
  /** Takes a place of the principal and of each aggregate; the result gives them back. Throws OVERLOADED, or ABORTED by the signal. */
  enter(passage: Passage, aggregates: readonly Aggregate[]): Leave | Promise<Leave>
  /** The same for a run of a request. One that this process runs is waited for; IN_PROGRESS is thrown if it does not end soon. */
  begin(passage: Passage, aggregates: readonly Aggregate[]): Promise<Leave>
  /** Whether this process runs the request, or has it in line. */
  isUnderWay(passage: Passage): boolean
  /** Keys that have commands now. */
  readonly size: number
}

export type Leave = () => void

/** Where a command waits. */
type At = Signals['command.queued']['at']

export function createCommandGate(options: GateOptions): CommandGate {
  const requests = new Places(1)
  const principals = new Places(options.maxPerPrincipal)
  const aggregates = new Places(options.maxPerAggregate)
  const lines = new Lines(options)

  /** From where the places ran out: at `keys[taken]`, or at the principal itself. */
  const enterLater = async (passage: Passage, keys: readonly string[], held: Held): Promise<Leave> => {
    const { principal } = passage
    try {
      if (!held.principal) await lines.wait(passage, { places: principals, key: principal, at: 'principal', isAhead: false })
      held.principal = true
      for (const key of keys.slice(held.taken)) {
        if (!aggregates.take(key)) {
          if (held.principal) principals.leave(principal)
          held.principal = false
          await lines.wait(passage, { places: aggregates, key, at: 'aggregate', isAhead: false })
        }
        held.taken += 1
      }
      // It holds aggregates now, so it goes before those of its principal that hold nothing.
      if (!held.principal && !principals.take(principal))
        await lines.wait(passage, { places: principals, key: principal, at: 'principal', isAhead: true })
      held.principal = true
    } catch (error) {
      leave(passage, keys, held)
      throw error
    }
    return () => leave(passage, keys, held)
  }
  const leave = ({ principal }: Passage, keys: readonly string[], held: Held): void => {
    for (const key of keys.slice(0, held.taken)) aggregates.leave(key)
    if (held.principal) principals.leave(principal)
    held.taken = 0
    held.principal = false
  }
  const enter: CommandGate['enter'] = (passage, given) => {
    const keys = keysOf(given)
    const held: Held = { principal: principals.take(passage.principal), taken: 0 }
    while (held.principal && held.taken < keys.length && aggregates.take(keys[held.taken] as string)) held.taken += 1
    if (held.principal && held.taken === keys.length) return () => leave(passage, keys, held)
    return enterLater(passage, keys, held)
  }
  return {
    enter,
    begin: async (passage, given) => {
      const request = requestKey(passage)
      if (request === undefined) return await enter(passage, given)
      if (!requests.take(request)) {
        await lines.waitForRun(passage, requests, request)
        return await enter(passage, given)
      }
      try {
        const entered = await enter(passage, given)
        return () => {
          entered()
          requests.open(request)
        }
      } catch (error) {
        requests.open(request)
        throw error
      }
    },
    isUnderWay: (passage) => requests.has(requestKey(passage)),
    get size() {
      return requests.size + principals.size + aggregates.size
    },
  }
}

/** Neither part has control characters. */
function requestKey({ principal, requestId }: Passage): string | undefined {
  return requestId === undefined ? undefined : `${principal}\n${requestId}`
}

/** What a command has taken: its principal's place, and those of so many of its aggregates. */
interface Held {
  principal: boolean
  taken: number
}

function keysOf(aggregates: readonly Aggregate[]): readonly string[] {
  if (aggregates.length < 2) return aggregates.map(aggregateKey)
  return [...new Set(aggregates.map(aggregateKey))].toSorted()
}

interface Waiter {
  readonly admit: () => void
  readonly isAhead: boolean
}

/** So many places of each key, and who waits for one. While there is a line, all places are taken: a place is handed on. */
class Places {
  readonly #max: number
  readonly #keys = new Map<string, { held: number; readonly line: Waiter[] }>()

  constructor(max: number) {
    this.#max = max
  }

  get size(): number {
    return this.#keys.size
  }

  has(key: string | undefined): boolean {
    return key !== undefined && this.#keys.has(key)
  }

  /** Takes a place if there is one. */
  take(key: string): boolean {
    const known = this.#keys.get(key)
    if (known === undefined) this.#keys.set(key, { held: 1, line: [] })
    else if (known.held < this.#max) known.held += 1
    else return false
    return true
  }

  leave(key: string): void {
    const known = this.#keys.get(key)
    if (known === undefined) return
    const next = known.line.shift()
    if (next !== undefined) next.admit()
    else if ((known.held -= 1) === 0) this.#keys.delete(key)
  }

  /** Lets in all who wait for a key, without places: what they waited for is over. */
  open(key: string): void {
    const line = this.#keys.get(key)?.line.splice(0) ?? []
    this.#keys.delete(key)
    for (const { admit } of line) admit()
  }

  /** How many wait. */
  waiting(key: string): number {
    return this.#keys.get(key)?.line.length ?? 0
  }

  /** Joins the line of a key whose places are taken; the result leaves it, and says whether it was still in it. */
  join(key: string, waiter: Waiter): () => boolean {
    const line = this.#keys.get(key)?.line ?? []
    const behind = waiter.isAhead ? line.findIndex(({ isAhead }) => !isAhead) : -1
    line.splice(behind === -1 ? line.length : behind, 0, waiter)
    return () => {
      const place = line.indexOf(waiter)
      if (place !== -1) line.splice(place, 1)
      return place !== -1
    }
  }
}

interface Wanted {
  readonly places: Places
  readonly key: string
  readonly at: At
  readonly isAhead: boolean
}

/** The waits in all lines: bounded by room, by time and by the caller, and told. */
class Lines {
  readonly #options: GateOptions
  #waiting = 0

  constructor(options: GateOptions) {
    this.#options = options
  }

  /** Resolves with a place taken. */
  async wait(passage: Passage, { places, key, at, isAhead }: Wanted): Promise<void> {
    const { maxQueued, queueTimeoutMs, signals } = this.#options
    const { command, principal, signal } = passage
    const told = (): Signals['command.queued'] => ({ command, principal, at, waiting: this.#waiting })
    const refuse = (reason: Reason): never => {
      signals.emit('command.refused', { ...told(), reason, waitedMs: passage.waitedMs })
      throw refusal(passage, { at, reason })
    }
    if (signal?.aborted === true) refuse('aborted')
    if (!isAhead && places.waiting(key) >= maxQueued) refuse('full')
    this.#waiting += 1
    signals.emit('command.queued', told())
    const beforeMs = passage.waitedMs
    const end = await this.#stand(passage, { places, key, isAhead, longestMs: Math.max(0, queueTimeoutMs - beforeMs) })
    this.#waiting -= 1
    if (end !== 'admitted') refuse(end)
    signals.emit('command.admitted', { ...told(), waitedMs: passage.waitedMs - beforeMs })
  }

  /** Resolves when the run of the request has ended, for all who wait at once; nothing is told, because repeats are no load. */
  async waitForRun(passage: Passage, places: Places, key: string): Promise<void> {
    const { maxQueued, markerLockMs: longestMs } = this.#options
    const isFull = places.waiting(key) >= maxQueued
    const end = isFull ? 'full' : await this.#stand({ ...passage }, { places, key, isAhead: false, longestMs })
    if (end === 'admitted') return
    if (end === 'aborted') throw refusal(passage, { at: 'principal', reason: end })
    throw noted(
      new WaybillError('IN_PROGRESS', 'The same request is being executed right now. Send it again to learn its outcome.'),
    )
  }

  /** Stands in a line until a place, the time or the caller ends it. */
  async #stand(passage: Passage, { places, key, isAhead, longestMs }: Stand): Promise<'admitted' | Reason> {
    const { clock } = this.#options
    const startedAtMs = clock.monotonicMs()
    const end = await new Promise<'admitted' | Reason>((resolve) => {
      const over = new AbortController()
      const settle = (how: 'admitted' | Reason): void => {
        over.abort()
        resolve(how)
      }
      const cancel = places.join(key, { admit: () => settle('admitted'), isAhead })
      const giveUp = (reason: Reason): void => {
        if (cancel()) settle(reason)
      }
      void clock.sleep(longestMs, over.signal).then(() => giveUp('late'))
      passage.signal?.addEventListener('abort', () => giveUp('aborted'), { once: true, signal: over.signal })
    })
    passage.waitedMs += clock.monotonicMs() - startedAtMs
    return end
  }
}

interface Stand extends Omit<Wanted, 'at'> {
  readonly longestMs: number
}

type Reason = Signals['command.refused']['reason']

/** Our refusals, told from those that a command's own code throws. */
const refusals = new WeakSet<object>()

function noted(error: WaybillError): WaybillError {
  refusals.add(error)
  return error
}

/** The refusal of a gate that this error is, or was made from: nothing that came after it has run. */
export function refusalOf(error: unknown): WaybillError | undefined {
  return [...chainOf(error)].find((each): each is WaybillError => refusals.has(each))
}

function refusal({ command }: Passage, { at, reason }: { readonly at: At; readonly reason: Reason }): WaybillError {
  const what = at === 'aggregate' ? 'the same aggregate' : 'the same principal'
  return noted(
    reason === 'aborted'
      ? new WaybillError('ABORTED', `The caller of ${command} gave up while it waited for its turn.`)
      : new WaybillError('OVERLOADED', `Too many commands of ${what} are under way. Send the same request again, later.`),
  )
}
