/**
 * The `Database` port of one process, on the fake store: single statements, and transactions that end as PostgreSQL ends them.
 *
 * A statement outside a transaction commits by itself before its answer sets out. A connection that is lost, or whose process
 * dies, leaves its transaction to the server, which rolls it back when it notices, unless a COMMIT was on its way.
 */
import type { BeginOptions, Database, Queryable, Tx } from '../../src/postgres/query/database.ts'
import type { SqlValue } from '../../src/postgres/query/sql.ts'
import { isConnectionLoss } from '../../src/postgres/query/sql-state.ts'
import { openGate } from '../../src/postgres/transaction/gate.ts'
import { commitFailure, openTx, transactionAborted } from '../../src/postgres/transaction/tx-scope.ts'
import type { Actor } from './actor.ts'
import type { Stage } from './stage.ts'
import type { FakeStore } from './store/fake-store.ts'
import type { Transaction } from './store/mvcc.ts'

export function fakeDatabase(store: FakeStore, actor: Actor, stage: Stage): Database<undefined> {
  return {
    query: async (text, values = []) => {
      const rows = await actor.ask(store.nameOf(text), () => autocommit(store, actor, { text, values }))
      return { rows, rowCount: rows.length }
    },
    attempt: (options, work) => attempt({ store, actor, stage }, options, work),
  }
}

async function autocommit(
  store: FakeStore,
  actor: Actor,
  { text, values }: { readonly text: string; readonly values: readonly SqlValue[] },
): Promise<readonly object[]> {
  const tx = store.begin({ isolation: 'read committed', lockTimeoutMs: 0, startedBy: actor.name })
  try {
    const rows = await store.run(tx, text, values)
    store.commit(tx)
    return rows
  } catch (error) {
    store.rollBack(tx)
    throw error
  }
}

interface Connection {
  readonly store: FakeStore
  readonly actor: Actor
  readonly stage: Stage
}

async function attempt<Result>(
  { store, actor, stage }: Connection,
  options: BeginOptions,
  work: (tx: Tx<undefined>) => Promise<Result>,
): Promise<Result> {
  const session = new Session(store, actor.name, stage)
  const forget = actor.onCut(() => void session.abandon())
  const query: Queryable['query'] = async (text, values = []) => {
    const rows = await actor.ask(store.nameOf(text), () => session.run(text, values))
    return { rows, rowCount: rows.length }
  }
  const gate = openGate()
  try {
    await actor.ask('begin', () => Promise.resolve(session.begin(options)))
    const result = await work(openTx(query, undefined, gate))
    gate.state = 'over'
    const tag = await actor
      .ask('commit', () => session.commit())
      .catch((error: unknown) => {
        throw commitFailure(error, { xid: String(session.id), server: 'fake' })
      })
    if (tag !== 'COMMIT') throw transactionAborted()
    return result
  } catch (error) {
    gate.state = 'over'
    if (isConnectionLoss(error)) void session.abandon()
    else if (session.isOpen) await actor.ask('rollback', () => session.rollBack()).catch(() => undefined)
    throw error
  } finally {
    forget()
  }
}

/** The server's side of a connection inside a transaction. */
class Session {
  readonly #store: FakeStore
  readonly #name: string
  readonly #stage: Stage
  #tx: Transaction | undefined
  #running: Promise<unknown> = Promise.resolve()

  constructor(store: FakeStore, name: string, stage: Stage) {
    this.#store = store
    this.#name = name
    this.#stage = stage
  }

  get id(): number | undefined {
    return this.#tx?.id
  }

  get isOpen(): boolean {
    return this.#tx?.status === 'in progress'
  }

  begin({ isolation, lockTimeoutMs }: BeginOptions): void {
    this.#tx = this.#store.begin({ isolation, lockTimeoutMs, startedBy: this.#name })
  }

  async run(text: string, values: readonly SqlValue[]): Promise<readonly object[]> {
    const tx = this.#tx as Transaction
    const running = this.#store.run(tx, text, values)
    this.#running = running.catch(() => undefined)
    return await running
  }

  async commit(): Promise<'COMMIT' | 'ROLLBACK'> {
    return this.#store.commit(this.#tx as Transaction)
  }

  async rollBack(): Promise<void> {
    if (this.#tx !== undefined) this.#store.rollBack(this.#tx)
  }

  /** The client is gone: what it was doing is finished, then everything is undone. */
  async abandon(): Promise<void> {
    await this.#running
    await this.#stage.step(`server notices that ${this.#name} is gone`)
    await this.#running
    if (this.#tx !== undefined) this.#store.rollBack(this.#tx)
  }
}
