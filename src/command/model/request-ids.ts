/**
 * The way from commands that may come without a request id to commands that must have one.
 *
 * Missing ids are counted by command and client. The switch to `required` shows who still sends none, and warns.
 *
 * A request id also names the events of its request: the header `command_id` follows from the principal and the request id, so those who
 * know both find the events, and others learn neither. It is not needed for the delivery.
 */
import { createHash } from 'node:crypto'

import type { Clock } from '../../core/service/clock.ts'
import type { SignalBus } from '../../core/signals.ts'
import type { CommandDefinition, EmittedEvent } from './command.ts'
import type { MarkerKey } from './command.sql.ts'

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
/** Longer names are cut: a header holds many kilobytes, and each of the thousand would be kept. */
const longestClient = 200

interface Tally {
  readonly command: string
  readonly client: string
  count: number
  /** Counts of the last minutes, by minute. */
  readonly minutes: Map<number, number>
}

/** Counts by command and client. Which clients are remembered is bounded, and those who send most are among them. */
interface Tallies {
  count(command: string, client: string): void
  all(): readonly Tally[]
  isRecent(minute: number): boolean
}

function createTallies(clock: Clock): Tallies {
  const byClient = new Map<string, Tally>()
  const others = new Map<string, Tally>()
  const minuteNow = (): number => Math.floor(clock.monotonicMs() / 60_000)
  const isRecent = (minute: number): boolean => minute > minuteNow() - windowMinutes
  const add = (tally: Tally, minutes: Iterable<readonly [number, number]>): void => {
    for (const [minute, n] of minutes) {
      tally.count += n
      tally.minutes.set(minute, (tally.minutes.get(minute) ?? 0) + n)
    }
    for (const minute of tally.minutes.keys()) if (!isRecent(minute)) tally.minutes.delete(minute)
  }
  const evictRarest = (): void => {
    let rarest: Tally | undefined
    for (const tally of byClient.values()) if (tally.count < (rarest?.count ?? Infinity)) rarest = tally
    if (rarest === undefined) return
    byClient.delete(keyOf(rarest.command, rarest.client))
    const rest = others.get(rarest.command) ?? newTally(rarest.command, 'others')
    others.set(rarest.command, rest)
    const earlier = rarest.count - [...rarest.minutes.values()].reduce((sum, n) => sum + n, 0)
    rest.count += earlier
    add(rest, rarest.minutes)
  }
  return {
    count: (command, client) => {
      const key = keyOf(command, client)
      if (!byClient.has(key) && byClient.size >= mostClients) evictRarest()
      const tally = byClient.get(key) ?? newTally(command, client)
      // Set anew, the map begins with those that were not seen for longest.
      byClient.delete(key)
      byClient.set(key, tally)
      add(tally, [[minuteNow(), 1]])
    },
    all: () => [...byClient.values(), ...others.values()],
    isRecent,
  }
}

function keyOf(command: string, client: string): string {
  return `${command}\n${client}`
}

function newTally(command: string, client: string): Tally {
  return { command, client, count: 0, minutes: new Map<number, number>() }
}

export function createRequestIds(parts: {
  readonly phase: RequestIdPhase
  readonly clock: Clock
  readonly signals: SignalBus
}): RequestIds {
  const { clock, signals } = parts
  const startedAtMs = clock.monotonicMs()
  const tallies = createTallies(clock)
  let phase = parts.phase
  let isForced = false

  const missing = (): readonly MissingRequestIds[] => {
    const elapsed = (clock.monotonicMs() - startedAtMs) / 60_000
    const minutes = Math.max(1, Math.min(windowMinutes, elapsed))
    const rate = (tally: Tally): number =>
      [...tally.minutes].reduce((sum, [minute, n]) => sum + (tallies.isRecent(minute) ? n : 0), 0) / minutes
    return tallies
      .all()
      .map((tally) => ({ command: tally.command, client: tally.client, count: tally.count, perMinute: rate(tally) }))
      .toSorted((a, b) => b.count - a.count)
  }
  return {
    allowMissing: (definition, given) => {
      // A copy: a slice would keep the whole name alive.
      const client = given.length > longestClient ? Buffer.from(given.slice(0, longestClient)).toString() : given
      const refused = (isForced ? 'required' : (definition.requestId ?? phase)) === 'required'
      tallies.count(definition.name, client)
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

/** The header, and the attribute of the message. */
const commandIdHeader = 'command_id'

/** The id of a request: half of the SHA-256 of principal and request id, which contain no line feed themselves. */
export function commandId({ principal, requestId }: MarkerKey): string {
  return createHash('sha256').update(`${principal}\n${requestId}`).digest('hex').slice(0, 32)
}

/** The events with their request's id among their headers. */
export function withCommandId(events: readonly EmittedEvent[], key: MarkerKey): readonly EmittedEvent[] {
  const ours = { [commandIdHeader]: commandId(key) }
  return events.map((event) => ({ ...event, options: { ...event.options, headers: { ...event.options?.headers, ...ours } } }))
}
