/**
 * What a statement does to tables: see, lock, insert, update, remove. Every wait for another transaction happens here.
 *
 * All of it works on one snapshot, as one SQL statement does; `next` takes the next one, as each statement inside a function
 * does. Rows are handed around as what was seen, together with where it is kept.
 */
import { DatabaseFailure } from './database-failure.ts'
import {
  blockerOf,
  closesCircle,
  isEnded,
  newestFor,
  occupant,
  refuseDuplicate,
  stronger,
  Tuple,
  visible,
  write,
  type LockMode,
  type Snapshot,
  type Table,
  type Transaction,
} from './mvcc.ts'

/** A row as a statement saw it. */
export interface Seen<R> {
  readonly tuple: Tuple<R>
  readonly row: R
}

/** What the statement needs of the store around it. */
export interface StoreTime {
  /** The database's clock, in milliseconds; two looks are never the same. */
  now(): number
  /** Lets others run, if the schedule says so. */
  pause(what: string): Promise<void>
  /** Resolves when `tx` has ended, or after `timeoutMs`; tells which. */
  ended(tx: Transaction, timeoutMs: number): Promise<'ended' | 'timed out'>
  lastCommit(): number
}

export interface LockOptions<R> {
  readonly mode?: LockMode
  /** Asked of the newest version, if that is not the one that was seen. A statement that finds rows by their place never takes another version. */
  readonly still?: (row: R) => boolean
  readonly skipLocked?: boolean
}

export class StatementContext {
  readonly tx: Transaction
  readonly #time: StoreTime
  #snapshot: Snapshot

  constructor(tx: Transaction, time: StoreTime) {
    this.tx = tx
    this.#time = time
    this.#snapshot = this.#take()
  }

  now(): number {
    return this.#time.now()
  }

  /** The next statement of a function: a younger snapshot, which sees what the earlier ones wrote. */
  async next(): Promise<void> {
    await this.#time.pause('next statement')
    this.close()
    this.#snapshot = this.#take()
  }

  /** The snapshot is not needed any more. */
  close(): void {
    this.tx.snapshots.delete(this.#snapshot)
  }

  see<R>(table: Table<R>, fits: (row: R) => boolean = () => true): Seen<R>[] {
    const found: Seen<R>[] = []
    for (const tuple of table.tuples) {
      const row = visible(tuple, this.#snapshot)
      if (row !== undefined && fits(row)) found.push({ tuple, row })
    }
    return found
  }

  rows<R>(table: Table<R>, fits?: (row: R) => boolean): R[] {
    return this.see(table, fits).map(({ row }) => row)
  }

  /** Locks a row until the transaction ends; its newest version, or `undefined` if it is gone or does not fit any more. */
  async lock<R>(seen: Seen<R>, options: LockOptions<R> = {}): Promise<R | undefined> {
    const { tuple } = seen
    const { mode = 'update', still = () => false, skipLocked = false } = options
    for (let holder = blockerOf(tuple, this.tx, mode); holder !== undefined; holder = blockerOf(tuple, this.tx, mode)) {
      if (skipLocked) return undefined
      await this.#wait(holder)
    }
    const newest = newestFor(tuple, this.tx)
    if (newest === undefined || isEnded(newest, this.tx)) return this.#changed()
    if (newest.data !== seen.row) {
      this.#changed()
      if (!still(newest.data)) return undefined
    }
    this.#hold(tuple, mode)
    return newest.data
  }

  /** Locks several rows in the order given; those that are still there and fit. */
  async lockAll<R>(all: readonly Seen<R>[], options: LockOptions<R> = {}): Promise<Seen<R>[]> {
    const locked: Seen<R>[] = []
    for (const seen of all) {
      const row = await this.lock(seen, options)
      if (row !== undefined) locked.push({ tuple: seen.tuple, row })
    }
    return locked
  }

  /** Changes a row, if it is still there and fits; returns it as it is now. */
  async update<R>(
    table: Table<R>,
    seen: Seen<R>,
    change: { readonly set: (row: R) => R; readonly still?: (row: R) => boolean },
  ): Promise<R | undefined> {
    const row = await this.lock(seen, { mode: 'no key update', ...(change.still !== undefined && { still: change.still }) })
    if (row === undefined) return undefined
    const data = change.set(row)
    await this.#refuseTaken(table, data, seen.tuple)
    write(table, seen.tuple, { tx: this.tx, data })
    return data
  }

  async updateAll<R>(
    table: Table<R>,
    all: readonly Seen<R>[],
    change: { readonly set: (row: R) => R; readonly still?: (row: R) => boolean },
  ): Promise<R[]> {
    const changed: R[] = []
    for (const seen of all) {
      const row = await this.update(table, seen, change)
      if (row !== undefined) changed.push(row)
    }
    return changed
  }

  /** Removes rows that are still there and fit; returns what they were. */
  async remove<R>(table: Table<R>, all: readonly Seen<R>[], still?: (row: R) => boolean): Promise<R[]> {
    const removed: R[] = []
    for (const seen of all) {
      const row = await this.lock(seen, still === undefined ? {} : { still })
      if (row === undefined) continue
      write(table, seen.tuple, { tx: this.tx, data: undefined })
      removed.push(row)
    }
    return removed
  }

  /**
   * Inserts a row. On a conflict: an error; nothing (`undefined` is returned); or a change of the row that is there, which
   * may decide to change nothing.
   */
  async insert<R>(
    table: Table<R>,
    data: R,
    onConflict: 'error' | 'nothing' | ((existing: R) => R | undefined) = 'error',
  ): Promise<R | undefined> {
    for (;;) {
      const found = await this.#occupied(table, data, undefined)
      if (found === undefined) break
      if (onConflict === 'error') refuseDuplicate(found.index)
      if (onConflict === 'nothing') return undefined
      const existing = await this.lock({ tuple: found.tuple, row: found.row }, { still: () => true })
      // It went away while we waited: the insert is tried again.
      if (existing === undefined) continue
      const changed = onConflict(existing)
      if (changed === undefined) return undefined
      write(table, found.tuple, { tx: this.tx, data: changed })
      return changed
    }
    const tuple = new Tuple<R>()
    write(table, tuple, { tx: this.tx, data })
    this.#hold(tuple, 'update')
    return data
  }

  async #refuseTaken<R>(table: Table<R>, data: R, except: Tuple<R>): Promise<void> {
    const found = await this.#occupied(table, data, except)
    if (found !== undefined) refuseDuplicate(found.index)
  }

  /** Who has one of the row's unique keys, once nobody's end has to be waited for. */
  async #occupied<R>(
    table: Table<R>,
    data: R,
    except: Tuple<R> | undefined,
  ): Promise<{ readonly tuple: Tuple<R>; readonly row: R; readonly index: string } | undefined> {
    for (const index of table.uniques) {
      const key = index.key(data)
      if (key === undefined) continue
      for (;;) {
        const found = occupant(table, index, { key, tx: this.tx, except })
        if (found === undefined) break
        if (found instanceof Tuple) return { tuple: found, row: (found.newest as { readonly data: R }).data, index: index.name }
        await this.#wait(found)
      }
    }
    return undefined
  }

  #hold<R>(tuple: Tuple<R>, mode: LockMode): void {
    const held = tuple.holders.get(this.tx)
    tuple.holders.set(this.tx, held === undefined ? mode : stronger(held, mode))
    this.tx.locked.add(tuple)
  }

  async #wait(holder: Transaction): Promise<void> {
    if (closesCircle(this.tx, holder)) throw new DatabaseFailure('40P01', 'deadlock detected')
    this.tx.waitsFor = holder
    const how = await this.#time.ended(holder, this.tx.lockTimeoutMs)
    this.tx.waitsFor = undefined
    if (how === 'timed out') throw new DatabaseFailure('55P03', 'canceling statement due to lock timeout')
  }

  /** A row that another changed meanwhile: a transaction that must see one state of the world cannot go on. */
  #changed(): undefined {
    if (this.tx.isolation !== 'read committed')
      throw new DatabaseFailure('40001', 'could not serialize access due to concurrent update')
    return undefined
  }

  #take(): Snapshot {
    const { tx } = this
    const at = tx.pinned ?? this.#time.lastCommit()
    if (tx.isolation !== 'read committed') tx.pinned = at
    const snapshot = { at, tx, command: (tx.command += 1) }
    tx.snapshots.add(snapshot)
    return snapshot
  }
}
