/**
 * The way from commands that may come without a request id to commands that must have one.
 *
 * Missing ids are counted by command and client. The switch to `required` shows who still sends none, and warns.
 */
import type { Clock } from '../core/clock.ts'
import type { SignalBus } from '../core/signals.ts'
import type { CommandDefinition } from './command.ts'

export type RequestIdPhase = 'optional' | 'required'

/** How many requests of a command came from a client without an id. */
export interface MissingRequestIds {
  readonly command: string
  readonly client: string
  readonly count: number
  /** Over the last ten minutes at most. */
  readonly perMinute: number
}

export interface RequestIds {
  /** Counts a request without an id; `false` if it must be refused. */
  allowMissing(definition: CommandDefinition, client: string): boolean
  /** Who sent requests without an id in this process, most first. */
  missing(): readonly MissingRequestIds[]
  /** From now on every command needs an id; returns, and warns about, who still sent none lately. */
  require(): readonly MissingRequestIds[]
}

const windowMinutes = 10
/** A client chooses its name, so the names are bounded: a new one takes the place of the rarest, which then counts among the others. */
const mostClients = 1_000

interface Tally {
  readonly command: string
  readonly client: string
  count: number
  /** Counts of the last minutes, by minute. */
  readonly minutes: Map<number, number>
}

function newTally(command: string, client: string): Tally {
  return { command, client, count: 0, minutes: new Map<number, number>() }
}

function add(minutes: Map<number, number>, minute: number, n: number): void {
  minutes.set(minute, (minutes.get(minute) ?? 0) + n)
}

export function createRequestIds(parts: {
  readonly phase: RequestIdPhase
  readonly clock: Clock
  readonly signals: SignalBus
}): RequestIds {
  const { clock, signals } = parts
  const startedAtMs = clock.monotonicMs()
  const tallies = new Map<string, Tally>()
  const others = new Map<string, Tally>()
  let phase = parts.phase
  let isForced = false

  const minuteNow = (): number => Math.floor(clock.monotonicMs() / 60_000)
  const forget = ({ minutes }: Tally): void => {
    for (const old of minutes.keys()) if (old <= minuteNow() - windowMinutes) minutes.delete(old)
  }
  const evict = (): void => {
    let rarest: Tally | undefined
    for (const tally of tallies.values()) if (tally.count < (rarest?.count ?? Infinity)) rarest = tally
    if (rarest === undefined) return
    tallies.delete(`${rarest.command}\n${rarest.client}`)
    const rest = others.get(rarest.command) ?? newTally(rarest.command, 'others')
    others.set(rarest.command, rest)
    rest.count += rarest.count
    for (const [minute, n] of rarest.minutes) add(rest.minutes, minute, n)
    forget(rest)
  }
  const count = (command: string, client: string): void => {
    const key = `${command}\n${client}`
    if (!tallies.has(key) && tallies.size >= mostClients) evict()
    const tally = tallies.get(key) ?? newTally(command, client)
    // Set anew, the map has those first that were not seen for longest.
    tallies.delete(key)
    tallies.set(key, tally)
    tally.count += 1
    add(tally.minutes, minuteNow(), 1)
    forget(tally)
  }
  const missing = (): readonly MissingRequestIds[] => {
    const elapsed = (clock.monotonicMs() - startedAtMs) / 60_000
    const minutes = Math.max(1, Math.min(windowMinutes, elapsed))
    const since = minuteNow() - windowMinutes
    const rate = (tally: Tally): number => [...tally.minutes].reduce((sum, [at, n]) => sum + (at > since ? n : 0), 0) / minutes
    return [...tallies.values(), ...others.values()]
      .map((tally) => ({ command: tally.command, client: tally.client, count: tally.count, perMinute: rate(tally) }))
      .toSorted((a, b) => b.count - a.count)
  }
  return {
    allowMissing: (definition, client) => {
      const refused = (isForced ? 'required' : (definition.requestId ?? phase)) === 'required'
      count(definition.name, client)
      signals.emit('command.request-id-missing', { command: definition.name, client, refused })
      return !refused
    },
    missing,
    require: () => {
      phase = 'required'
      isForced = true
      const still = missing().filter(({ perMinute }) => perMinute > 0)
      for (const { command, client, perMinute } of still)
        signals.emit('command.required-too-early', { command, client, perMinute })
      return still
    },
  }
}
