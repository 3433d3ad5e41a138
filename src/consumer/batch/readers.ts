/**
 * What the running instances of a consumer read, as they register it: streams and event types.
 *
 *   start ──▶ registered ──heartbeat──▶ … ──clean end──▶ gone        a death: the registration runs out by the database's clock
 *
 * An instance that meets an event which it does not know looks whether one of another version does. A look that is asked for begins
 * after that, so whoever registered before the event came is seen. There is one look at a time, and it serves all who ask meanwhile.
 *
 * After an outage the registrations of others may have run out with our own: the next look waits until they had the time to come back.
 */
import { createHash, randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { execute, rows } from '../../postgres/query/database.ts'
import { withDeadlines } from '../../postgres/transaction/deadline.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import type { ReceivedEvent } from '../model/received-event.ts'
import { beat, leave, selectOtherReads } from '../tables/readers.sql.ts'
import type { Routes, Unknown } from '../model/routes.ts'

export interface OtherReaders {
  /** Whether a running instance of another version reads an event's stream, or its type. */
  read(event: Pick<ReceivedEvent, 'aggregateType' | 'type'>, unknown: Unknown): boolean
}

export interface Readers {
  /** By a look that begins after this call. Rejects if the database cannot be asked. */
  look(): Promise<OtherReaders>
}

export interface ReadersDeps {
  readonly settings: Pick<ConsumerSettings, 'db' | 'clock'>
  readonly scope: Scope
  readonly routes: Pick<Routes, 'known' | 'types'>
}

const beatMs = 10_000
const leaseMs = 60_000
const silentMs = 5_000
/** Between two looks: a topic with many foreign streams costs so many statements a second, and no more. */
const spacingMs = 20

/** Does the work with this instance registered. */
export async function withRegistration<Result>(deps: ReadersDeps, work: (readers: Readers) => Promise<Result>): Promise<Result> {
  const { settings, scope, routes } = deps
  const { clock } = settings
  // Neither a heartbeat nor a farewell may keep a consumer that stops.
  const db = withDeadlines(settings.db, { statementMs: silentMs, clock })
  const reads = readsOf(routes)
  const digest = createHash('sha256').update(reads).digest('hex').slice(0, 16)
  const registration = { instance: randomUUID(), host: hostname(), reads, digest, leaseMs }
  let beatenAtMs = clock.monotonicMs()
  let calmAtMs = beatenAtMs
  const keep = async (): Promise<void> => {
    const beganAtMs = clock.monotonicMs()
    await execute(db, beat(scope, registration))
    // The others were out of reach as well: each of them comes back within a heartbeat.
    if (beganAtMs - beatenAtMs >= leaseMs - beatMs) calmAtMs = clock.monotonicMs() + 2 * beatMs
    beatenAtMs = beganAtMs
  }
  await keep()
  const done = new AbortController()
  const keeping = async (): Promise<void> => {
    while (!done.signal.aborted) {
      await clock.sleep(beatMs, done.signal)
      // One that fails is made again, for it is in time for long.
      if (!done.signal.aborted) await keep().catch(() => undefined)
    }
  }
  const kept = keeping()
  const read = async (): Promise<OtherReaders> => {
    if (clock.monotonicMs() - beatenAtMs >= leaseMs - beatMs) await keep()
    const restMs = calmAtMs - clock.monotonicMs()
    if (restMs > 0) await clock.sleep(restMs, done.signal)
    return toReaders(await rows(db, selectOtherReads(scope, digest)))
  }
  try {
    return await work({ look: coalesced(read, (ms) => clock.sleep(ms, done.signal)) })
  } finally {
    done.abort()
    await kept
    // Without a database it runs out by itself.
    await execute(db, leave(scope, registration.instance)).catch(() => undefined)
  }
}

/** One look at a time, and a pause between two: whoever asks gets one that begins later. */
function coalesced(look: () => Promise<OtherReaders>, pause: (ms: number) => Promise<void>): Readers['look'] {
  let next: Promise<OtherReaders> | undefined
  let rested: Promise<unknown> = Promise.resolve()
  const begin = async (): Promise<OtherReaders> => {
    await rested
    next = undefined
    const looking = look()
    rested = Promise.allSettled([looking, pause(spacingMs)])
    return await looking
  }
  return () => (next ??= begin())
}

/** As JSON, the same for instances that read the same. */
function readsOf({ known, types }: ReadersDeps['routes']): string {
  const events = (type: string): readonly string[] =>
    known.flatMap(({ aggregateType, eventType }) => (aggregateType === type ? eventType : [])).toSorted()
  return JSON.stringify(Object.fromEntries(types.toSorted().map((type) => [type, events(type)])))
}

function toReaders(found: readonly { readonly reads: string }[]): OtherReaders {
  const types = new Map<string, Set<string>>()
  for (const { reads } of found)
    for (const [type, events] of Object.entries(JSON.parse(reads) as Record<string, readonly string[]>))
      types.set(type, new Set([...(types.get(type) ?? []), ...events]))
  return {
    read: ({ aggregateType, type }, unknown) =>
      unknown === 'stream' ? types.has(aggregateType) : types.get(aggregateType)?.has(type) === true,
  }
}
