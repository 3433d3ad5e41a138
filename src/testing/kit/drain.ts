/**
 * Lets everything that was written arrive: relays publish, consumers apply, what handlers emit goes on its way, until nothing
 * moves any more.
 *
 * Nothing is guessed from silence. An event that a relay has published is awaited at each consumer that reads its stream, until
 * the consumer's own tables say what became of it. What does not move by itself (parked, held, delayed, dead, waiting behind a
 * gap) ends no test in a time-out: it is counted in the result.
 */
import { AssertionError } from 'node:assert'
import { setTimeout as delay } from 'node:timers/promises'
import { inboxTables, readConsumer, type Scope } from '../../consumer/tables/inbox.sql.ts'
import type { Routes } from '../../consumer/model/routes.ts'
import { errorMessage, isWaybillError, WaybillError } from '../../core/errors.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { refuseUnknown } from '../../core/options.ts'
import type { Relay } from '../../outbox/relay/relay.ts'
import { first, one, rows } from '../../postgres/query/database.ts'
import { projectedVersions, type JudgedConsumer } from '../history/read-history.ts'
import {
  countResting,
  readMoving,
  readPublished,
  readUnsettled,
  readWritten,
  type PublishedRow,
  type UnsettledRow,
} from './test-kit.sql.ts'

export type DrainedConsumer = JudgedConsumer & Service

export interface DrainOptions {
  readonly relays?: readonly Relay[]
  readonly consumers?: readonly DrainedConsumer[]
  /** The ids of events that went to another broker: no consumer is awaited for them. @default none */
  readonly elsewhere?: ReadonlySet<string>
  /** Runs them for as long as it takes. `false` if they run already. @default true */
  readonly start?: boolean
  /** @default 20_000 */
  readonly timeoutMs?: number
}

/** What is left, because it does not move by itself. */
export interface Drained {
  readonly parked: number
  readonly held: number
  /** Retried, or not to be published, later than the drain had time for. */
  readonly delayed: number
  readonly deadLetters: number
  /** Stored behind a gap or a dead letter. */
  readonly waiting: number
}

const pauseMs = 5

/** Works until nothing moves; an AssertionError that says what still does, when time is up. */
export async function drain(options: DrainOptions): Promise<Drained> {
  refuseUnknown('drain', options, ['relays', 'consumers', 'elsewhere', 'start', 'timeoutMs'])
  const { relays = [], consumers = [], elsewhere, start = true, timeoutMs = 20_000 } = options
  if (consumers.length > 0) refuseRemoving(relays)
  const deadline = performance.now() + timeoutMs
  const running = start ? runAll(consumers) : undefined
  const settling = consumers.map((consumer) => createSettling(consumer, elsewhere))
  const leftMs = (): number => Math.max(1, Math.ceil(deadline - performance.now()))
  let trouble: unknown
  const relaying = async (relay: Relay): Promise<string[]> => {
    const { db, outbox } = relay.settings
    const { due, soon } = await one(db, readMoving(outbox.tables, leftMs()))
    if (due > 0 && start) {
      try {
        const late = AbortSignal.timeout(leftMs())
        await relay.once(late, late)
        if (!late.aborted) trouble = undefined
      } catch (error) {
        // An outage may end; one that does not is told when time is up.
        if (!isWaybillError(error, 'UNAVAILABLE')) throw error
        trouble = error
      }
    }
    return due + soon > 0 ? [`${due + soon} events are on their way out of ${outbox.tables.schema}.outbox`] : []
  }
  try {
    for (;;) {
      const open: string[] = []
      const written = await countWritten(relays)
      for (const relay of relays) open.push(...(await relaying(relay)))
      for (const each of settling) open.push(...(await each.open(relays)))
      // Handlers emit in the transaction that settles: if nothing was written during this look, nothing is on its way.
      if (open.length === 0 && (await countWritten(relays)) === written) return await countLeft({ relays, consumers })
      running?.throwIfEnded()
      if (performance.now() >= deadline) throw notDrained(timeoutMs, open, trouble)
      await delay(pauseMs)
    }
  } finally {
    await running?.stop()
  }
}

/** A published event that is gone cannot be awaited. */
function refuseRemoving(relays: readonly Relay[]): void {
  if (relays.every(({ settings }) => settings.retain === 'events')) return
  const why = `drain: with retain: 'none' of a relay, nothing says what consumers still have to apply`
  throw new WaybillError('INVALID_OPTION', `${why}. Leave retain at 'events', or drain without consumers.`)
}

interface Running {
  throwIfEnded(): void
  stop(): Promise<void>
}

function runAll(services: readonly Service[]): Running {
  const stopping = new AbortController()
  const life = { stopping: stopping.signal, aborting: new AbortController().signal }
  const failures: unknown[] = []
  const all = services.map((service) => service.run(life).catch((error: unknown) => void failures.push(error)))
  const throwIfEnded = (): void => {
    if (failures.length > 0) throw failures[0]
  }
  return {
    throwIfEnded,
    stop: async () => {
      stopping.abort()
      await Promise.all(all)
      throwIfEnded()
    },
  }
}

interface Settling {
  /** The published events that the consumer has not dealt with. */
  open(relays: readonly Relay[]): Promise<string[]>
}

/**
 * Remembers what is settled, so that each look asks for the rest only. What went elsewhere is from the beginning; what waits
 * behind a gap or a dead letter is not open, but may be at the next look.
 */
function createSettling(consumer: DrainedConsumer, elsewhere: Iterable<string> = []): Settling {
  const { db, inbox, name, streams } = consumer.settings
  const settled = new Set(elsewhere)
  const types = streams.map(({ aggregateType }) => aggregateType)
  const look = async (published: readonly PublishedRow[]): Promise<readonly PublishedRow[]> => {
    const positionedTypes = inbox ? consumer.routes().sequentialTypes : types
    const found = await rows(db, readUnsettled(await scopeOf(consumer), published, positionedTypes))
    const eventsOf = (part: readonly UnsettledRow[]): PublishedRow[] => part.flatMap(({ place }) => published[place - 1] ?? [])
    const moving = eventsOf(found.filter(({ is_resting: isResting }) => !isResting))
    const resting = eventsOf(found.filter(({ is_resting: isResting }) => isResting))
    const open = inbox ? moving : await withoutProjected(consumer, moving)
    const unsettled = new Set([...open, ...resting])
    for (const event of published) if (!unsettled.has(event)) settled.add(event.id)
    return open
  }
  return {
    open: async (relays) => {
      const open: PublishedRow[] = []
      for (const { settings: relay } of relays) {
        const published = await rows(relay.db, readPublished(relay.outbox.tables, types))
        const unknown = published.filter(({ id }) => !settled.has(id))
        if (unknown.length > 0) open.push(...(await look(unknown)))
      }
      return open.map(
        ({ aggregate_type: type, aggregate_id: id, version }) => `${name} has not dealt with ${type} ${id} v${version}`,
      )
    },
  }
}

/** A consumer without an inbox shows what it has applied by the versions of its rows. */
async function withoutProjected(
  { settings, routes }: { readonly settings: DrainedConsumer['settings']; readonly routes: () => Routes },
  events: readonly PublishedRow[],
): Promise<readonly PublishedRow[]> {
  const isApplied = new Set<PublishedRow>()
  for (const projection of routes().projections) {
    const own = events.filter((event) => event.aggregate_type === projection.stream.aggregateType)
    const ids = [...new Set(own.map((event) => event.aggregate_id))]
    const versions = await projectedVersions(settings.db, projection, ids)
    for (const event of own)
      if (BigInt(versions.get(event.aggregate_id)?.slice(1) ?? 0) >= BigInt(event.version)) isApplied.add(event)
  }
  return events.filter((event) => !isApplied.has(event))
}

/** Whose rows a consumer's are. */
export async function scopeOf({ settings: { db, schema, name } }: Pick<JudgedConsumer, 'settings'>): Promise<Scope> {
  const tables = inboxTables(schema)
  const registered = await first(db, readConsumer({ tables, consumer: name }))
  return { tables, consumer: name, generation: registered?.generation ?? 1 }
}

async function countWritten(relays: readonly Relay[]): Promise<bigint> {
  let written = 0n
  for (const { settings } of relays) written += BigInt((await one(settings.db, readWritten(settings.outbox.tables))).versions)
  return written
}

async function countLeft({ relays = [], consumers = [] }: Pick<DrainOptions, 'relays' | 'consumers'>): Promise<Drained> {
  const left = { parked: 0, held: 0, delayed: 0, deadLetters: 0, waiting: 0 }
  for (const { settings } of relays) {
    const { parked, held, later } = await one(settings.db, readMoving(settings.outbox.tables, 0))
    left.parked += parked
    left.held += held
    left.delayed += later
  }
  for (const consumer of consumers) {
    const { deadLetters, waiting } = await one(consumer.settings.db, countResting(await scopeOf(consumer)))
    left.deadLetters += deadLetters
    left.waiting += waiting
  }
  return left
}

const shownLines = 10

function notDrained(timeoutMs: number, open: readonly string[], trouble: unknown): AssertionError {
  const more = open.length > shownLines ? [`… and ${open.length - shownLines} more`] : []
  const why = trouble === undefined ? [] : [`The relay says: ${errorMessage(trouble)}`]
  const lines = [`Not drained within ${timeoutMs} ms:`, ...open.slice(0, shownLines), ...more, ...why]
  return new AssertionError({ message: lines.join('\n'), actual: open, expected: [], operator: 'drain' })
}
