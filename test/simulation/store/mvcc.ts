/**
 * The memory of the fake store: rows with their versions, transactions, snapshots and row locks, as PostgreSQL has them.
 *
 * A statement sees what had committed when its snapshot was taken, and what its own transaction wrote before. Writers of one
 * row wait for each other; a waiter that goes on looks at the newest version, and gives the row up if it does not fit any
 * more. Inserts of one unique key wait for the one that came first. Whoever closes a circle of waiters is the deadlock's
 * victim. Nothing else is here: what a statement means is said beside its table.
 */
import { DatabaseFailure } from './database-failure.ts'

/** `no key update` is an update's, `update` a removal's and that of `for update`. */
export type LockMode = 'key share' | 'share' | 'no key update' | 'update'

/** Weakest first, each with those that it waits for. */
const conflicts: Readonly<Record<LockMode, readonly LockMode[]>> = {
  'key share': ['update'],
  share: ['no key update', 'update'],
  'no key update': ['share', 'no key update', 'update'],
  update: ['key share', 'share', 'no key update', 'update'],
}

/** What a transaction holds that asked for both. */
export function stronger(a: LockMode, b: LockMode): LockMode {
  return conflicts[a].length > conflicts[b].length ? a : b
}

interface End {
  readonly by: Transaction
  readonly command: number
}

interface Version<R> {
  readonly data: R
  readonly by: Transaction
  readonly command: number
  end: End | undefined
}

/** One row through its versions, oldest first. */
export class Tuple<R> {
  readonly versions: Version<R>[] = []
  readonly holders = new Map<Transaction, LockMode>()

  get newest(): Version<R> | undefined {
    return this.versions.at(-1)
  }
}

/** A unique index: its name, and the key of a row, or `undefined` for a row that is not in it. */
export interface UniqueIndex<R> {
  readonly name: string
  readonly key: (row: R) => string | undefined
}

export class Table<R> {
  readonly name: string
  readonly uniques: readonly UniqueIndex<R>[]
  readonly tuples = new Set<Tuple<R>>()
  #identity = 0

  constructor(name: string, uniques: readonly UniqueIndex<R>[] = []) {
    this.name = name
    this.uniques = uniques
  }

  /** The next number of the identity column; like a sequence, it is never given back. */
  nextIdentity(): number {
    return (this.#identity += 1)
  }
}

export type Isolation = 'read committed' | 'repeatable read' | 'serializable'

export class Transaction {
  readonly id: number
  readonly isolation: Isolation
  readonly startedBy: string
  lockTimeoutMs: number
  status: 'in progress' | 'committed' | 'aborted' = 'in progress'
  /** Its place among the commits. */
  committedAt: number | undefined
  command = 0
  /** A statement failed; nothing but a rollback is possible. */
  failed = false
  readonly undo: (() => void)[] = []
  readonly written = new Map<Tuple<unknown>, Table<unknown>>()
  readonly locked = new Set<Tuple<unknown>>()
  readonly snapshots = new Set<Snapshot>()
  /** What it sees from its first statement on, unless each statement sees anew. */
  pinned: number | undefined
  waitsFor: Transaction | undefined
  #onRelease: (() => void)[] = []

  constructor(options: {
    readonly id: number
    readonly isolation: Isolation
    readonly lockTimeoutMs: number
    readonly startedBy: string
  }) {
    this.id = options.id
    this.isolation = options.isolation
    this.lockTimeoutMs = options.lockTimeoutMs
    this.startedBy = options.startedBy
  }

  /** Tells once, as soon as it has given its locks back. */
  onRelease(listener: () => void): void {
    this.#onRelease.push(listener)
  }

  released(): void {
    for (const listener of this.#onRelease) listener()
    this.#onRelease = []
  }
}

/** What a statement sees: commits up to `at`, and its own transaction's writes before `command`. */
export interface Snapshot {
  readonly at: number
  readonly tx: Transaction
  readonly command: number
}

/** The version of a row that a snapshot sees. */
export function visible<R>(tuple: Tuple<R>, snapshot: Snapshot): R | undefined {
  for (let i = tuple.versions.length - 1; i >= 0; i -= 1) {
    const version = tuple.versions[i] as Version<R>
    if (!isSeen(version, snapshot)) continue
    return version.end !== undefined && isSeen(version.end, snapshot) ? undefined : version.data
  }
  return undefined
}

function isSeen({ by, command }: End, snapshot: Snapshot): boolean {
  if (by === snapshot.tx) return command < snapshot.command
  return by.committedAt !== undefined && by.committedAt <= snapshot.at
}

/** Whose end a writer of this row has to wait for. */
export function blockerOf<R>(tuple: Tuple<R>, tx: Transaction, mode: LockMode): Transaction | undefined {
  for (const [holder, held] of tuple.holders) if (holder !== tx && conflicts[mode].includes(held)) return holder
  return undefined
}

/** The newest version that is nobody else's yet: the weakest lock does not wait for an update under way. */
export function newestFor<R>(tuple: Tuple<R>, tx: Transaction): Version<R> | undefined {
  return tuple.versions.findLast(({ by }) => !isUnderWay(by, tx))
}

/** Whether this version was replaced or removed, as far as `tx` can tell. */
export function isEnded({ end }: Version<unknown>, tx: Transaction): boolean {
  return end !== undefined && !isUnderWay(end.by, tx)
}

function isUnderWay(other: Transaction, tx: Transaction): boolean {
  return other !== tx && other.status === 'in progress'
}

/** Whether `tx` would wait for itself if it waited for `holder`. */
export function closesCircle(tx: Transaction, holder: Transaction): boolean {
  for (let next: Transaction | undefined = holder; next !== undefined; next = next.waitsFor) if (next === tx) return true
  return false
}

/** A live row, other than `except`, that has the key already; or the transaction to wait for before that can be said. */
export function occupant<R>(
  table: Table<R>,
  index: UniqueIndex<R>,
  asked: { readonly key: string; readonly tx: Transaction; readonly except?: Tuple<R> | undefined },
): Tuple<R> | Transaction | undefined {
  for (const tuple of table.tuples) {
    if (tuple === asked.except) continue
    const { newest } = tuple
    if (newest === undefined || index.key(newest.data) !== asked.key) {
      const before = tuple.versions.at(-2)
      const leaving = newest !== undefined && newest.by !== asked.tx && newest.by.status === 'in progress' ? before : undefined
      // Somebody moves away from this key, and may come back to it by a rollback.
      if (leaving !== undefined && index.key(leaving.data) === asked.key) return (newest as Version<R>).by
      continue
    }
    if (newest.by !== asked.tx && newest.by.status === 'in progress') return newest.by
    if (newest.end === undefined) return tuple
    if (newest.end.by !== asked.tx && newest.end.by.status === 'in progress') return newest.end.by
  }
  return undefined
}

/** Puts a new version in the place of the newest; undone with its transaction. */
export function write<R>(
  table: Table<R>,
  tuple: Tuple<R>,
  change: { readonly tx: Transaction; readonly data: R | undefined },
): void {
  const { tx, data } = change
  const { newest } = tuple
  if (newest === undefined) table.tuples.add(tuple)
  else newest.end = { by: tx, command: tx.command }
  const version = data === undefined ? undefined : { data, by: tx, command: tx.command, end: undefined }
  if (version !== undefined) tuple.versions.push(version)
  tx.written.set(tuple, table as Table<unknown>)
  tx.undo.push(() => {
    if (version !== undefined) tuple.versions.splice(tuple.versions.indexOf(version), 1)
    if (newest === undefined) table.tuples.delete(tuple)
    else newest.end = undefined
  })
}

/** Forgets versions that nobody can see any more. */
export function vacuum(tx: Transaction, oldestSnapshot: number): void {
  for (const [tuple, table] of tx.written) {
    const isDead = ({ end }: Version<unknown>): boolean =>
      end?.by.committedAt !== undefined && end.by.committedAt <= oldestSnapshot
    const kept = tuple.versions.filter((version) => !isDead(version))
    tuple.versions.splice(0, tuple.versions.length, ...kept)
    if (kept.length === 0) table.tuples.delete(tuple)
  }
}

export function refuseDuplicate(name: string): never {
  throw new DatabaseFailure('23505', `duplicate key value violates unique constraint "${name}"`)
}
