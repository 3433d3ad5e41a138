/**
 * Applies what was stored, lane by lane.
 *
 *   take lanes ──▶ read ──▶ one transaction: lanes locked and still ours · effects · messages removed ──▶ give lanes back
 *                    └ leases prolonged beside it, so that they outlive a transaction that is rolled back and made again
 *
 * A lane is worked by one processor at a time, so messages of an aggregate are applied in the order they came, with any
 * number of processors. A crash leaves the messages where they were; their lanes are free again when the lease is over.
 * A suspect is worked when all others are done and their lanes are given back. It keeps one lane, in at most half of the places; one
 * that finds no place rests.
 */
import { randomUUID } from 'node:crypto'
import { execute, rows, type Tx } from '../../postgres/query/database.ts'
import { fromReceived, limitDecodedBytes } from '../model/decode.ts'
import type { CrashSuspects } from '../failure/crash-suspects.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Routes } from '../model/routes.ts'
import { LostClaimError, orderKey, type UnreadItem } from '../model/batch-item.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import { placesOfSuspects, suspectsLast } from '../model/places.ts'
import { delayAtHead } from '../failure/settle.ts'
import { fenceLanes, giveLanes, makeLanes, readReceived, renewLanes, takeLanes, type ReceivedRow } from '../tables/stored.sql.ts'

/** What a batch of leased lanes does while it is worked. */
export interface LeasedBatch {
  /** First in every transaction; throws LostClaimError. */
  readonly guard: (tx: Tx) => Promise<void>
  /** A sign of life, with every transaction and every handler. */
  readonly onAlive: () => void
}

export interface ProcessorDeps {
  readonly settings: ConsumerSettings
  readonly routes: Routes
  readonly scope: Scope
  /** Settles every item; never rejects. */
  readonly work: (items: readonly UnreadItem[], batch: LeasedBatch) => Promise<void>
  /** An item that rested before may have failed in another process; a slow one is worked apart. */
  readonly suspects: Pick<CrashSuspects, 'isSlow' | 'markFailed'>
}

export interface StoredProcessor {
  /** Once, before the first pass. */
  prepare(): Promise<void>
  /** Works one batch; `idle` if there was none. */
  pass(): Promise<'more' | 'idle'>
  /** Whether no batch is under way, and the last look found nothing. */
  isIdle(): boolean
}

interface Lease {
  readonly token: string
  readonly lanes: readonly number[]
}

const lanesInAll = 64
const strangerMs = 60_000
const noPlace = 'Its handler ran out of time before, and others like it have the places for such events.'

export function createStoredProcessor(deps: ProcessorDeps): StoredProcessor {
  const { settings, routes, scope, work, suspects } = deps
  const { db, processBatchSize, batchBytes, leaseMs, concurrency, signals, random } = settings
  const worker = randomUUID()
  const count = Math.ceil(lanesInAll / concurrency)
  let atWork = 0
  let dry = false

  /** A message that only other versions can read as an event rests, so that nobody else has to step over it. */
  const takeReadable = async (found: readonly ReceivedRow[]): Promise<readonly UnreadItem[]> => {
    const items = found.map((row) => fromReceived(row, routes))
    const error = `Consumer ${scope.consumer} cannot read this message as an event in this process.`
    for (const [i, item] of items.entries()) {
      const row = found[i]
      if (item === undefined && row !== undefined) await delayAtHead(db, scope, { place: row, delayMs: strangerMs, error })
      if (item !== undefined && row !== undefined && row.attempts > 0) suspects.markFailed(item)
    }
    return items.filter((item) => item !== undefined)
  }
  const workItems = async (items: readonly UnreadItem[], lease: Lease, lagMs: number): Promise<void> => {
    if (items.length === 0) return
    let lost = false
    await keeping(deps, lease, async (onAlive) => {
      const guard = async (tx: Tx): Promise<void> => {
        onAlive()
        const held = await rows(tx, fenceLanes(scope, lease))
        lost = held.length < lease.lanes.length
        if (lost) throw new LostClaimError(`Another processor of consumer ${scope.consumer} took over the lanes of this batch.`)
      }
      await work(items, { guard, onAlive })
    })
    if (!lost) signals.emit('consumer.processed', { consumer: scope.consumer, count: items.length, lagMs })
  }
  const workSuspect = createSuspectWork(deps, workItems)
  const workLanes = async (taken: Lease): Promise<void> => {
    const read = await rows(db, readReceived(scope, { ...taken, batchSize: processBatchSize, batchBytes }))
    const found = limitDecodedBytes(read, batchBytes, routes)
    if (found.length === 0) return
    const lagMs = Math.max(...found.map((row) => Number(row.waited_ms)))
    const { others, suspects: slow } = suspectsLast(await takeReadable(found), suspects.isSlow, orderKey)
    await workItems(others, { ...taken, lanes: [...new Set(found.map(({ lane }) => lane))] }, lagMs)
    await workSuspect(slow, taken, lagMs)
  }
  return {
    prepare: async () => void (await execute(db, makeLanes(scope))),
    pass: async () => {
      const token = randomUUID()
      const from = Math.floor(random.next() * lanesInAll)
      const taken = await rows(db, takeLanes(scope, { token, worker, leaseMs, count, from }))
      dry = taken.length === 0
      if (dry) return 'idle'
      const lease = { token, lanes: taken.map(({ lane }) => lane) }
      atWork += 1
      try {
        await workLanes(lease)
      } finally {
        atWork -= 1
        // Who found nothing meanwhile could not look into these lanes.
        dry = false
        await execute(db, giveLanes(scope, lease))
      }
      return 'more'
    },
    isIdle: () => atWork === 0 && dry,
  }
}

type WorkItems = (items: readonly UnreadItem[], lease: Lease, lagMs: number) => Promise<void>

/** Works the first of the suspects in its lane alone, if there is a place; the others rest. What is in line behind one is read again. */
function createSuspectWork({ settings, scope, suspects }: ProcessorDeps, workItems: WorkItems): WorkItems {
  const { db, pollMs, concurrency } = settings
  let atWork = 0
  const rest = async (items: readonly UnreadItem[]): Promise<void> => {
    for (const { origin } of items)
      if (origin.kind === 'stored') await delayAtHead(db, scope, { place: origin, delayMs: pollMs, error: noPlace })
  }
  return async (items, taken, lagMs) => {
    const [next, ...others] = items.filter(suspects.isSlow)
    if (next?.origin.kind !== 'stored') return
    if (atWork >= placesOfSuspects(concurrency)) return await rest([next, ...others])
    atWork += 1
    try {
      await rest(others)
      const { lane } = next.origin
      await execute(db, giveLanes(scope, { ...taken, lanes: taken.lanes.filter((each) => each !== lane) }))
      await workItems([next], { ...taken, lanes: [lane] }, lagMs)
    } finally {
      atWork -= 1
    }
  }
}

/** Does the work with its leases kept; `onAlive` is its sign of life. */
async function keeping(
  { settings, scope }: Pick<ProcessorDeps, 'settings' | 'scope'>,
  lease: Lease,
  work: (onAlive: () => void) => Promise<void>,
): Promise<void> {
  const { db, clock, leaseMs, statementTimeoutMs, handlerTimeoutMs } = settings
  // One that hangs for longer, on a connection whose server is gone, must not keep its lanes from everybody for ever.
  const silentMs = statementTimeoutMs + handlerTimeoutMs
  const done = new AbortController()
  let aliveMs = clock.monotonicMs()
  const keep = async (): Promise<void> => {
    for (;;) {
      await clock.sleep(leaseMs / 3, done.signal)
      if (done.signal.aborted) return
      if (clock.monotonicMs() - aliveMs > silentMs) continue
      // One that could not be prolonged ends by itself.
      await execute(db, renewLanes(scope, { ...lease, leaseMs })).catch(() => undefined)
    }
  }
  // Nobody waits for it: a renewal that comes too late finds no token of ours.
  void keep()
  try {
    await work(() => {
      aliveMs = clock.monotonicMs()
    })
  } finally {
    done.abort()
  }
}
