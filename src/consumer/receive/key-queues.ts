/**
 * Forms batches out of what came in: an aggregate is in one batch at a time, its messages in the order they came.
 *
 * Different aggregates go in parallel. Several messages of one aggregate may be in one batch; what comes for an aggregate
 * whose batch is under way waits until that is done. A suspect is in no batch with others.
 */
export interface Queued {
  readonly key: string
  readonly bytes: number
  /** Is taken alone, and only when it is asked for. */
  readonly isSuspect?: boolean
}

interface Line<Entry> {
  waiting: Entry[]
  /** Of those that wait. */
  bytes: number
  busy: boolean
}

export class KeyQueues<Entry extends Queued> {
  readonly #lines = new Map<string, Line<Entry>>()
  /** Lines with something in them and nothing under way, longest without a turn first. */
  readonly #ready = new Set<Line<Entry>>()
  /** The same, of those that begin with a suspect. */
  readonly #suspect = new Set<Line<Entry>>()
  #readyCount = 0
  #readyBytes = 0

  /** What a batch could take now. */
  get readyCount(): number {
    return this.#readyCount
  }

  get readyBytes(): number {
    return this.#readyBytes
  }

  /** Whether a suspect could be taken now. */
  get hasSuspect(): boolean {
    return this.#suspect.size > 0
  }

  /** All that waits, whether its aggregate is busy or not. */
  *waiting(): Iterable<Entry> {
    for (const line of this.#lines.values()) yield* line.waiting
  }

  push(entry: Entry): void {
    let line = this.#lines.get(entry.key)
    if (line === undefined) this.#lines.set(entry.key, (line = { waiting: [entry], bytes: entry.bytes, busy: false }))
    else {
      line.waiting.push(entry)
      line.bytes += entry.bytes
    }
    if (line.busy) return
    if (line.waiting.length === 1) return this.#free(line)
    if (!this.#ready.has(line)) return
    this.#readyCount += 1
    this.#readyBytes += entry.bytes
  }

  /** A suspect; its aggregate is busy until `done`. Undefined if none is ready. */
  takeSuspect(): Entry | undefined {
    for (const line of this.#suspect) {
      const [entry, ...rest] = line.waiting
      this.#busy(line)
      line.waiting = rest
      line.bytes -= entry?.bytes ?? 0
      return entry
    }
    return undefined
  }

  /** A batch within the limits (one that is larger alone is taken alone); its aggregates are busy until `done`. */
  take(maxCount: number, maxBytes: number): Entry[] {
    const batch: Entry[] = []
    let bytes = 0
    for (const line of this.#ready) {
      const { waiting } = line
      const before = { count: batch.length, bytes }
      for (const entry of waiting) {
        if (entry.isSuspect === true || batch.length >= maxCount || (batch.length > 0 && bytes + entry.bytes > maxBytes)) break
        batch.push(entry)
        bytes += entry.bytes
      }
      const taken = batch.length - before.count
      if (taken === 0) break
      this.#busy(line)
      line.waiting = taken === waiting.length ? [] : waiting.slice(taken)
      line.bytes -= bytes - before.bytes
      if (line.waiting.length > 0) break
    }
    return batch
  }

  /** The aggregates' batch is over: what waited for it is ready, behind the others. */
  done(keys: Iterable<string>): void {
    for (const key of keys) {
      const line = this.#lines.get(key)
      // A batch names an aggregate as often as it has its messages.
      if (line?.busy !== true) continue
      if (line.waiting.length === 0) this.#lines.delete(key)
      else this.#free(line)
    }
  }

  /** Takes out what waits for an aggregate and satisfies `gone`. */
  purge(key: string, gone: (entry: Entry) => boolean): Entry[] {
    const line = this.#lines.get(key)
    if (line === undefined) return []
    const { busy } = line
    if (!busy) this.#busy(line)
    const purged = line.waiting.filter(gone)
    line.waiting = line.waiting.filter((entry) => !purged.includes(entry))
    for (const { bytes } of purged) line.bytes -= bytes
    if (!busy) this.done([key])
    return purged
  }

  #busy(line: Line<Entry>): void {
    line.busy = true
    if (this.#suspect.delete(line) || !this.#ready.delete(line)) return
    this.#readyCount -= line.waiting.length
    this.#readyBytes -= line.bytes
  }

  #free(line: Line<Entry>): void {
    line.busy = false
    if (line.waiting[0]?.isSuspect === true) return void this.#suspect.add(line)
    this.#ready.add(line)
    this.#readyCount += line.waiting.length
    this.#readyBytes += line.bytes
  }
}
