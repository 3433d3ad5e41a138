/**
 * A database in memory that runs our statements: each is recognised by its text, which the same function made that makes it
 * for PostgreSQL, and does on JavaScript tables what its SQL says. A text that nobody defined is an error, never ignored.
 *
 * The store keeps no time and no order of its own: its clock and its pauses are handed in, so a schedule decides when a
 * statement sees, when it goes on, and who is served first. That it behaves like PostgreSQL is itself tested, by the same
 * script of statements on both (see store.pg.test.ts).
 */
import type { SqlValue, Statement } from '../../../src/postgres/query/sql.ts'
import { connectionLost, DatabaseFailure } from './database-failure.ts'
import { Transaction, Tuple, vacuum, write, type Isolation, type Table } from './mvcc.ts'
import { StatementContext, type StoreTime } from './statement-context.ts'

/** What a statement does; its rows are what the driver returns. */
export type Meaning = (context: StatementContext, values: readonly SqlValue[]) => Promise<readonly object[]>

/** Time and order, as the simulation wants them. */
export interface Surroundings {
  /** The database's clock, in milliseconds. */
  readonly nowMs: () => number
  readonly pause: (what: string) => Promise<void>
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
}

/** A change that committed: which table, before and after. */
export interface Change {
  readonly table: string
  readonly before: unknown
  readonly after: unknown
}

export interface Committed {
  readonly by: string
  readonly changes: readonly Change[]
}

/** Looks closer together than a clock's tick still have an order. */
const tickMs = 0.000_1

export class FakeStore {
  readonly #meanings = new Map<string, { readonly name: string; readonly run: Meaning }>()
  readonly #active = new Set<Transaction>()
  readonly #status = new Map<number, Transaction>()
  readonly #surroundings: Surroundings
  readonly #listeners: ((committed: Committed) => void)[] = []
  readonly #time: StoreTime
  #transactions = 0
  #commits = 0
  #ticks = 0

  constructor(surroundings: Surroundings) {
    this.#surroundings = surroundings
    this.#time = {
      now: () => surroundings.nowMs() + (this.#ticks += 1) * tickMs,
      pause: surroundings.pause,
      ended: (tx, timeoutMs) => this.#ended(tx, timeoutMs),
      lastCommit: () => this.#commits,
    }
  }

  /** Says what a statement means. `sample` is the statement with any arguments: its text is always the same. */
  define(name: string, sample: Statement, run: Meaning): void {
    this.#meanings.set(sample.text, { name, run })
  }

  nameOf(text: string): string {
    const known = this.#meanings.get(text)
    if (known === undefined) throw new Error(`The fake store does not know this statement; define it:\n${text}`)
    return known.name
  }

  onCommit(listener: (committed: Committed) => void): void {
    this.#listeners.push(listener)
  }

  begin(options: { readonly isolation: Isolation; readonly lockTimeoutMs: number; readonly startedBy: string }): Transaction {
    const tx = new Transaction({ id: (this.#transactions += 1), ...options })
    this.#active.add(tx)
    this.#status.set(tx.id, tx)
    return tx
  }

  /** Runs one statement: what it sees is settled first, what it does may come later. */
  async run(tx: Transaction, text: string, values: readonly SqlValue[]): Promise<readonly object[]> {
    const meaning = this.#meanings.get(text)
    if (meaning === undefined) throw new Error(`The fake store does not know this statement; define it:\n${text}`)
    if (tx.failed)
      throw new DatabaseFailure('25P02', 'current transaction is aborted, commands ignored until end of transaction block')
    if (tx.status !== 'in progress') throw connectionLost()
    const context = new StatementContext(tx, this.#time)
    try {
      await this.#surroundings.pause(`${meaning.name} sees`)
      return await meaning.run(context, values)
    } catch (error) {
      // Its effects and its locks go at once; that it is over is said when it is ended.
      this.rollBack(tx)
      tx.failed = true
      throw error
    } finally {
      context.close()
    }
  }

  /** Ends a transaction; what it says, like the server's tag, may be the other thing than what was asked. */
  commit(tx: Transaction): 'COMMIT' | 'ROLLBACK' {
    if (tx.failed) {
      this.rollBack(tx)
      return 'ROLLBACK'
    }
    if (tx.status !== 'in progress') throw new DatabaseFailure('25P01', 'there is no transaction in progress')
    const changes = [...tx.written].map(([tuple, table]) => change(tuple, table, tx))
    tx.committedAt = this.#commits += 1
    tx.status = 'committed'
    this.#end(tx)
    vacuum(tx, this.#oldestSnapshot())
    for (const listener of this.#listeners) listener({ by: tx.startedBy, changes })
    return 'COMMIT'
  }

  rollBack(tx: Transaction): void {
    if (tx.status !== 'in progress') return
    for (let undo = tx.undo.pop(); undo !== undefined; undo = tx.undo.pop()) undo()
    tx.status = 'aborted'
    this.#end(tx)
  }

  /** Puts rows there as if they had always been. */
  seed<R>(table: Table<R>, rows: readonly R[]): void {
    const tx = this.begin({ isolation: 'read committed', lockTimeoutMs: 0, startedBy: 'seed' })
    for (const data of rows) write(table, new Tuple<R>(), { tx, data })
    this.commit(tx)
  }

  statusOf(id: number): Transaction['status'] | undefined {
    return this.#status.get(id)?.status
  }

  /** What has committed by now, for whoever checks. */
  committed<R>(table: Table<R>): R[] {
    const found: R[] = []
    for (const { versions } of table.tuples) {
      const version = versions.findLast(({ by }) => by.status === 'committed')
      if (version !== undefined && version.end?.by.status !== 'committed') found.push(version.data)
    }
    return found
  }

  #end(tx: Transaction): void {
    this.#active.delete(tx)
    for (const tuple of tx.locked) tuple.holders.delete(tx)
    tx.released()
  }

  #oldestSnapshot(): number {
    let oldest = this.#commits
    for (const { pinned, snapshots } of this.#active) {
      oldest = Math.min(oldest, pinned ?? oldest)
      for (const { at } of snapshots) oldest = Math.min(oldest, at)
    }
    return oldest
  }

  async #ended(tx: Transaction, timeoutMs: number): Promise<'ended' | 'timed out'> {
    const ended = new AbortController()
    tx.onRelease(() => ended.abort())
    if (timeoutMs > 0) await this.#surroundings.sleep(timeoutMs, ended.signal)
    else await new Promise<void>((done) => tx.onRelease(done))
    await this.#surroundings.pause('lock granted')
    return ended.signal.aborted ? 'ended' : 'timed out'
  }
}

function change(tuple: Tuple<unknown>, table: Table<unknown>, tx: Transaction): Change {
  const before = tuple.versions.findLast(({ by }) => by !== tx)
  const after = tuple.versions.findLast(({ end }) => end === undefined)
  return { table: table.name, before: before?.data, after: after?.data }
}
