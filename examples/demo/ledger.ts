/**
 * The books of the demo: every commit, publish and effect is entered once, and whatever does not agree is a violation.
 *
 *   lost          an answered request without its commit, or a commit that readers jumped over or, at the end, never saw
 *   doubled       a second effect of one event, or a second commit of one request
 *   out of order  a version that reached the broker or took effect before an earlier one
 *   stale         a projection that went back, a reader who was shown less than its token, a row unlike its owner's at the end
 *
 * Facts may be entered late, but an effect never before its commit. It remembers what is under way, not what is done: its size
 * does not grow with the time that the demo runs.
 */
import type { Latencies } from './latencies.ts'

export interface AggregateName {
  readonly type: string
  readonly id: string
}

export interface Commit extends AggregateName {
  readonly eventId: string
  readonly version: number
  readonly atMs: number
  /** The request that caused it, where one is tracked. */
  readonly edit: string | null | undefined
}

export interface Effect extends AggregateName {
  readonly eventId: string
  readonly version: number
  readonly atMs: number
}

export interface Counts {
  readonly committed: number
  readonly published: number
  readonly applied: number
  readonly lost: number
  readonly doubled: number
  readonly outOfOrder: number
  readonly stale: number
}

interface Aggregate {
  committed: number
  applied: number
  projected: number
  readonly missing: Set<number>
}

interface Flight {
  readonly commit: Commit
  publishedAtMs: number | undefined
  appliedAtMs: number | undefined
}

interface Request {
  answeredAtMs: number | undefined
  isCommitted: boolean
}

const answerIsLateMs = 10_000
const mostViolations = 20

export class Ledger {
  readonly violations: string[] = []
  /** Events that are not published or not applied yet. */
  readonly flights = new Map<string, Flight>()
  readonly #latencies: Latencies
  readonly #aggregates = new Map<string, Aggregate>()
  readonly #requests = new Map<string, Request>()
  readonly #counts = { committed: 0, published: 0, applied: 0, doubled: 0, outOfOrder: 0, stale: 0 }
  #lost = 0

  constructor(latencies: Latencies) {
    this.#latencies = latencies
  }

  get counts(): Counts {
    return { ...this.#counts, lost: this.#lost }
  }

  get isClean(): boolean {
    const { lost, doubled, outOfOrder, stale } = this.counts
    return lost + doubled + outOfOrder + stale === 0
  }

  /** The last committed version of every aggregate, for whoever reads on from there. */
  cursors(): readonly (AggregateName & { readonly version: number })[] {
    return [...this.#aggregates].map(([key, { committed }]) => {
      const [type = '', id = ''] = key.split(' ')
      return { type, id, version: committed }
    })
  }

  commit(commit: Commit): void {
    const aggregate = this.#aggregate(commit)
    if (commit.version !== aggregate.committed + 1)
      this.#violate('outOfOrder', `${nameOf(commit)}: version ${commit.version} was committed after ${aggregate.committed}`)
    aggregate.committed = commit.version
    this.#counts.committed += 1
    this.flights.set(commit.eventId, { commit, publishedAtMs: undefined, appliedAtMs: undefined })
    if (typeof commit.edit === 'string') this.#commitRequest(commit, commit.edit)
  }

  publish(eventId: string, atMs: number): void {
    const flight = this.flights.get(eventId)
    if (flight === undefined || flight.publishedAtMs !== undefined) return
    flight.publishedAtMs = atMs
    this.#counts.published += 1
    this.#latencies.published(atMs - flight.commit.atMs)
    this.#land(eventId, flight)
  }

  effect(effect: Effect): void {
    const aggregate = this.#aggregate(effect)
    const { version } = effect
    if (version <= aggregate.applied && !aggregate.missing.delete(version))
      return this.#violate('doubled', `${nameOf(effect)}: version ${version} (${effect.eventId}) took effect twice`)
    if (version > aggregate.applied + 1) {
      this.#violate('outOfOrder', `${nameOf(effect)}: version ${version} took effect after ${aggregate.applied}`)
      for (let missing = aggregate.applied + 1; missing < version; missing += 1) aggregate.missing.add(missing)
    }
    aggregate.applied = Math.max(aggregate.applied, version)
    this.#counts.applied += 1
    const flight = this.flights.get(effect.eventId)
    if (flight === undefined) return this.#violate('doubled', `${nameOf(effect)}: ${effect.eventId} took effect but is no event`)
    flight.appliedAtMs = effect.atMs
    this.#latencies.applied(effect.atMs - flight.commit.atMs)
    this.#land(effect.eventId, flight)
  }

  /** A version as a reader of the projection sees it. Returns whether it is another one than before. */
  project(at: AggregateName & { readonly version: number }): boolean {
    const aggregate = this.#aggregate(at)
    const isOther = at.version !== aggregate.projected
    if (at.version < aggregate.projected)
      this.#violate('stale', `${nameOf(at)}: its projection went from version ${aggregate.projected} back to ${at.version}`)
    aggregate.projected = at.version
    return isOther
  }

  ask(edit: string): void {
    this.#requests.set(edit, { answeredAtMs: undefined, isCommitted: false })
  }

  answer(edit: string): void {
    const request = this.#requests.get(edit)
    if (request !== undefined) request.answeredAtMs = performance.now()
  }

  /** Enters what somebody else found out. */
  violate(kind: 'lost' | 'doubled' | 'outOfOrder' | 'stale', what: string): void {
    this.#violate(kind, what)
  }

  /** Looks for answers without a commit among those that were old when the commits were read, and forgets requests that are done. */
  review(readFromMs: number): void {
    for (const [edit, { answeredAtMs, isCommitted }] of this.#requests) {
      if (answeredAtMs === undefined || readFromMs - answeredAtMs < answerIsLateMs) continue
      if (!isCommitted) this.#violate('lost', `request ${edit} was answered, and its commit is not there`)
      this.#requests.delete(edit)
    }
  }

  /** At rest: what has not arrived is lost. */
  close(): void {
    for (const [key, { committed, applied, missing }] of this.#aggregates) {
      const lost = committed - applied + missing.size
      if (lost > 0) this.#violate('lost', `${key}: ${lost} of ${committed} events never took effect`, lost)
    }
    for (const [edit, { answeredAtMs, isCommitted }] of this.#requests)
      if (answeredAtMs !== undefined && !isCommitted)
        this.#violate('lost', `request ${edit} was answered, and its commit is not there`)
  }

  #commitRequest(commit: Commit, edit: string): void {
    const request = this.#requests.get(edit)
    if (request === undefined || request.isCommitted)
      return this.#violate('doubled', `${nameOf(commit)}: request ${edit} was committed again as version ${commit.version}`)
    request.isCommitted = true
  }

  #land(eventId: string, { publishedAtMs, appliedAtMs }: Flight): void {
    if (publishedAtMs !== undefined && appliedAtMs !== undefined) this.flights.delete(eventId)
  }

  #violate(kind: 'lost' | 'doubled' | 'outOfOrder' | 'stale', what: string, count = 1): void {
    if (kind === 'lost') this.#lost += count
    else this.#counts[kind] += count
    if (this.violations.length < mostViolations) this.violations.push(what)
  }

  #aggregate({ type, id }: AggregateName): Aggregate {
    const key = `${type} ${id}`
    const known = this.#aggregates.get(key)
    if (known !== undefined) return known
    const fresh = { committed: 0, applied: 0, projected: 0, missing: new Set<number>() }
    this.#aggregates.set(key, fresh)
    return fresh
  }
}

function nameOf({ type, id }: AggregateName): string {
  return `${type} ${id}`
}
