/**
 * Looks at a group's committed offsets from outside, again and again, and after each that moved at what the database has.
 *
 * In this order a commit that is ahead of the database is seen, however short it is ahead. Which event stands at which offset is
 * read from the log at the end; only then are the looks judged.
 */
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { KafkaAdmin } from '../../src/transport/kafka/admin.ts'

export interface Look {
  readonly committed: ReadonlyMap<number, bigint>
  /** How many of the processed events were known by then. */
  readonly processed: number
}

export interface OffsetObserver {
  /** Event ids in the order in which their effects were seen in the database. */
  readonly processed: readonly string[]
  readonly looks: readonly Look[]
  stop(): Promise<void>
}

export interface OffsetObserverOptions {
  readonly admin: KafkaAdmin
  readonly topic: string
  readonly group: string
  /** The ids of all events whose effect is committed. */
  readonly readProcessed: () => Promise<readonly string[]>
}

export function observeOffsets({ admin, topic, group, readProcessed }: OffsetObserverOptions): OffsetObserver {
  const processed = new Set<string>()
  const looks: Look[] = []
  let isOver = false
  const look = async (): Promise<void> => {
    const committed = await admin.committedOffsets(topic, group)
    const last = looks.at(-1)?.committed
    const moved = [...committed].some(([partition, offset]) => last?.get(partition) !== offset)
    // Without a new commit it tells nothing what the database has by now.
    if (moved) for (const id of await readProcessed()) processed.add(id)
    looks.push({ committed, processed: processed.size })
  }
  const running = (async () => {
    while (!isOver) await look().catch(() => undefined)
    await eventually(look)
  })()
  return {
    get processed() {
      return [...processed]
    },
    looks,
    stop: async () => {
      isOver = true
      await running
    },
  }
}

/** What was wrong: a commit beyond the processed prefix, or one that went back. `events` has each partition's ids by offset. */
export function judgeLooks(
  { looks, processed }: Pick<OffsetObserver, 'looks' | 'processed'>,
  events: ReadonlyMap<number, ReadonlyMap<bigint, string>>,
): readonly string[] {
  const seenAt = new Map(processed.map((id, index) => [id, index]))
  const found: string[] = []
  const before = new Map<number, bigint>()
  for (const look of looks) {
    for (const [partition, offset] of look.committed) {
      const last = before.get(partition) ?? 0n
      if (offset < last) found.push(`partition ${partition} went back from ${last} to ${offset}`)
      for (let each = last; each < offset; each += 1n) {
        const id = events.get(partition)?.get(each)
        if (id !== undefined && (seenAt.get(id) ?? Infinity) >= look.processed)
          found.push(`partition ${partition}: ${offset} was committed, but ${each} not processed`)
      }
      before.set(partition, offset)
    }
  }
  return found
}
