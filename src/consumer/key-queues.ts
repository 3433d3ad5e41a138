/**
 * Forms batches out of what came in: an aggregate is in one batch at a time, its messages in the order they came.
 *
 * Different aggregates go in parallel. Several messages of one aggregate may be in one batch; what comes for an aggregate
 * whose batch is under way waits until that is done.
 */
export interface Queued {
  readonly key: string
  readonly bytes: number
}

interface Line<Entry> {
  readonly key: string
  waiting: Entry[]
  busy: boolean
}

export class KeyQueues<Entry extends Queued> {
  readonly #lines = new Map<string, Line<Entry>>()
  /** Lines with something in them and nothing under way, longest without a turn first. */
  readonly #ready = new Set<Line<Entry>>()
  #readyCount = 0
  #readyBytes = 0

  /** What a batch could take now. */
  get readyCount(): number {
    return this.#readyCount
  }

  get readyBytes(): number {
    return this.#readyBytes
  }

  push(entry: Entry): void {
    let line = this.#lines.get(entry.key)
    if (line === undefined) this.#lines.set(entry.key, (line = { key: entry.key, waiting: [], busy: false }))
    line.waiting.push(entry)
    if (line.busy) return
    this.#ready.add(line)
    this.#count([entry], 1)
  }

  /** A batch within the limits (one that is larger alone is taken alone); its aggregates are busy until `done`. */
  take(maxCount: number, maxBytes: number): Entry[] {
    const batch: Entry[] = []
    let bytes = 0
    for (const line of this.#ready) {
      const room = line.waiting.findIndex((entry, i) => {
        if (batch.length + i >= maxCount) return true
        return (bytes += entry.bytes) > maxBytes && batch.length + i > 0
      })
      const taken = room === -1 ? line.waiting.splice(0) : line.waiting.splice(0, room)
      if (taken.length > 0) {
        line.busy = true
        this.#ready.delete(line)
        this.#count(taken, -1)
        this.#count(line.waiting, -1)
        batch.push(...taken)
      }
      if (room !== -1) break
    }
    return batch
  }

  /** The aggregates' batch is over: what waited for it is ready, behind the others. */
  done(keys: Iterable<string>): void {
    for (const key of new Set(keys)) {
      const line = this.#lines.get(key)
      if (line === undefined) continue
      line.busy = false
      if (line.waiting.length === 0) {
        this.#lines.delete(key)
        continue
      }
      this.#ready.add(line)
      this.#count(line.waiting, 1)
    }
  }

  /** Takes out what waits for an aggregate and satisfies `gone`. */
  purge(key: string, gone: (entry: Entry) => boolean): Entry[] {
    const line = this.#lines.get(key)
    if (line === undefined) return []
    const purged = line.waiting.filter(gone)
    line.waiting = line.waiting.filter((entry) => !purged.includes(entry))
    if (!line.busy) {
      this.#count(purged, -1)
      if (line.waiting.length === 0) {
        this.#ready.delete(line)
        this.#lines.delete(key)
      }
    }
    return purged
  }

  #count(entries: readonly Entry[], sign: 1 | -1): void {
    this.#readyCount += sign * entries.length
    for (const { bytes } of entries) this.#readyBytes += sign * bytes
  }
}
