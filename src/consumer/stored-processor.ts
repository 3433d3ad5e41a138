/**
 * Applies what was stored, lane by lane.
 *
 *   take lanes ──▶ read ──▶ one transaction: lanes locked and still ours · effects · messages removed ──▶ give lanes back
 *
 * A lane is worked by one processor at a time, so messages of an aggregate are applied in the order they came, with any
 * number of processors. A crash leaves the messages where they were; their lanes are free again when the lease is over.
 */
import { randomUUID } from 'node:crypto'
import { execute, rows, type Tx } from '../postgres/database.ts'
import { fromReceived } from './decode.ts'
import type { EngineDeps } from './consumer-engine.ts'
import { Fenced } from './fenced.ts'
import type { Scope } from './inbox.sql.ts'
import type { Item } from './item.ts'
import { fenceLanes, giveLanes, makeLanes, readReceived, restReceived, takeLanes, type ReceivedRow } from './stored.sql.ts'

/** Called first in every transaction that applies stored messages; throws Fenced. */
export type Guard = (tx: Tx) => Promise<void>

export interface ProcessorDeps extends Pick<EngineDeps, 'settings' | 'routes'> {
  readonly scope: Scope
  /** Settles every item; never rejects. */
  readonly work: (items: readonly Item[], guard: Guard) => Promise<void>
}

export interface StoredProcessor {
  /** Once, before the first pass. */
  prepare(): Promise<void>
  /** Works one batch; `idle` if there was none. */
  pass(): Promise<'more' | 'idle'>
  /** Whether no batch is under way, and the last look found nothing. */
  isIdle(): boolean
}

const lanesInAll = 64
const strangerMs = 60_000

export function createStoredProcessor({ settings, routes, scope, work }: ProcessorDeps): StoredProcessor {
  const { db, processBatchSize, batchBytes, leaseMs, concurrency, signals, random } = settings
  const worker = randomUUID()
  const count = Math.ceil(lanesInAll / concurrency)
  let atWork = 0
  let dry = false

  /** A message of a stream that only other processes know rests, so that nobody else has to step over it. */
  const decode = async (found: readonly ReceivedRow[]): Promise<readonly Item[]> => {
    const items = await Promise.all(found.map((row) => fromReceived(row, routes)))
    const error = `No stream of consumer ${scope.consumer} in this process has this message.`
    for (const [i, item] of items.entries()) {
      const row = found[i]
      if (item === undefined && row !== undefined) await execute(db, restReceived(scope, row, { delayMs: strangerMs, error }))
    }
    return items.filter((item) => item !== undefined)
  }
  const workLanes = async (lease: { readonly token: string; readonly lanes: readonly number[] }): Promise<void> => {
    const found = await rows(db, readReceived(scope, { ...lease, batchSize: processBatchSize, batchBytes }))
    const items = await decode(found)
    if (items.length === 0) return
    const lanes = [...new Set(found.map(({ lane }) => lane))]
    let lost = false
    await work(items, async (tx) => {
      const held = await rows(tx, fenceLanes(scope, { ...lease, lanes, leaseMs }))
      lost = held.length < lanes.length
      if (lost) throw new Fenced(`Another processor of consumer ${scope.consumer} took over the lanes of this batch.`)
    })
    if (lost) return
    const lagMs = Math.max(...found.map((row) => Number(row.waited_ms)))
    signals.emit('consumer.processed', { consumer: scope.consumer, count: items.length, lagMs })
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
