/**
 * postgres.js as a `Database` (from `sql`) or as a `Tx` (from the `sql` of `sql.begin`).
 *
 * A client that renames columns (`transform: postgres.camel`) is refused: we read our own rows by their names.
 * Statements are sent unprepared, so they work behind a pooler in transaction mode.
 *
 * Limit: postgres.js asks each new connection for the types of arrays and does not listen to the answer, so a connection that ends just
 * then is an unhandled rejection. Pass `fetch_types: false`; our statements need no array types.
 *
 * Limit: a statement of `tx.native` that failed makes postgres.js fail the transaction in the end, also if the error was caught and
 * a savepoint was rolled back since. Run it inside of `tx.native.savepoint(…)`, or with `tx.query`.
 */
import { readFile, type PathOrFileDescriptor } from 'node:fs'

import { WaybillError } from '../../core/errors.ts'
import type { Database, Queryable, Tx } from '../query/database.ts'
import { ormDatabase, ormTx, wrongHandle } from './orm-database.ts'
import { enter, leave, nestedTransaction, refusal, track, type Gate } from '../transaction/gate.ts'

/** The part of a postgres.js client or transaction that runs statements. */
export interface PostgresJsExecutor {
  unsafe(text: string, values?: never[]): PromiseLike<readonly unknown[]>
}

/** The part of a postgres.js transaction we use. */
export interface PostgresJsTransaction extends PostgresJsExecutor {
  savepoint(...rest: never[]): unknown
}

/** The part of a postgres.js client we use. */
export interface PostgresJsDatabase<Native> extends PostgresJsExecutor {
  begin<Result>(options: string, work: (sql: Native) => Result | Promise<Result>): Promise<unknown>
}

/** `sql` becomes a database; the `sql` of `sql.begin` becomes that transaction. */
export function fromPostgresJs<Native extends PostgresJsTransaction>(sql: Native): Tx<Native>
export function fromPostgresJs<Native extends PostgresJsTransaction>(sql: PostgresJsDatabase<Native>): Database<Native>
export function fromPostgresJs<Native extends PostgresJsTransaction>(
  handle: Native | PostgresJsDatabase<Native>,
): Tx<Native> | Database<Native> {
  if (typeof (handle as Partial<PostgresJsExecutor> | undefined)?.unsafe !== 'function') {
    throw wrongHandle('fromPostgresJs', 'the sql of postgres(…), or the sql of sql.begin(async (sql) => …)')
  }
  assertPlainNames(handle)
  if ('savepoint' in handle) return ormTx(postgresJsQueryable(handle), handle)
  if (typeof (handle as { release?: unknown }).release === 'function' || typeof handle.begin !== 'function') {
    throw wrongHandle('fromPostgresJs', 'a pool or a transaction, not a reserved connection. Use sql.begin(…)')
  }
  return ormDatabase<Native>({
    pool: handle,
    ...postgresJsQueryable(handle),
    begin: async ({ isolation, gate }, work) => {
      const guarded = (sql: Native): ReturnType<typeof work> => work(guardPostgresJs(sql, gate))
      return (await handle.begin(`isolation level ${isolation}`, guarded)) as Awaited<ReturnType<typeof work>>
    },
    connection: postgresJsConnection,
  })
}

/** Its transactions do not show their options, but the identifiers they make do. */
function assertPlainNames(handle: object): void {
  const { options } = handle as { options?: { transform?: Record<string, { from?: unknown } | undefined> } }
  const identifier = (handle as unknown as (name: string) => { value?: string })('aB-c')
  const hidden = identifier.value !== '"aB-c"'
  const shown = ['column', 'value', 'row'].some((part) => options?.transform?.[part]?.from !== undefined)
  if (!hidden && !shown) return
  throw new WaybillError(
    'INVALID_OPTION',
    'fromPostgresJs(sql): this client transforms names or values, and would rename our columns. Make one without `transform` for Waybill.',
  )
}

/** Runs statements on a postgres.js client, or in a transaction of the user's own. */
export function postgresJsQueryable(handle: PostgresJsExecutor): Queryable {
  return queryableOf(handle, {})
}

/**
 * Runs statements in a transaction of ours. postgres.js listens to each statement by its `catch`, and would not commit after one
 * failed, not even after a rollback to a savepoint. We ask the server before COMMIT, which knows better.
 */
export function postgresJsConnection(handle: PostgresJsExecutor): Queryable {
  return queryableOf(handle, { catch: () => undefined })
}

function queryableOf(handle: PostgresJsExecutor, unheard: object): Queryable {
  const executor = handle as {
    unsafe(text: string, values: readonly unknown[], options: object): PromiseLike<readonly unknown[]>
  }
  return {
    query: async (text, values) => {
      const result = await Object.assign(executor.unsafe(text, values === undefined ? [] : [...values], alone), unheard)
      return { rows: [...result], rowCount: (result as { count?: number | null }).count ?? result.length }
    },
  }
}

/**
 * Keeps postgres.js from sending the next statement on the same connection before this one is answered. PgBouncer 1.18
 * takes the answer for the end of both, gives the server to somebody else, and the second one waits for ever.
 */
const alone = { onexecute: (): boolean => false }

/**
 * The `sql` of a postgres.js transaction for the closure that it was begun for: statements after its end are refused.
 *
 * Its statements are sent when they are awaited, not when they are written, so each is stopped where it would be sent.
 * Fragments and helpers are no statements and always work.
 */
type Sql = (...parts: unknown[]) => unknown

interface Sender {
  strings: readonly string[]
  active: boolean
  cursor(...asked: unknown[]): unknown
  handler(query: Sender): unknown
  resolve: (value: unknown) => void
  reject: (error: Error) => void
}

/** The `sql` of a transaction, behind the gate. */
function guardPostgresJs<Native extends object>(native: Native, gate: Gate): Native {
  const stopped = (made: unknown): unknown => stopWhereSent(made, gate)
  return new Proxy(native, {
    apply: (target, self, parts: unknown[]) => stopped(Reflect.apply(target as Sql, self, parts)),
    get: (target, key) => {
      const value: unknown = Reflect.get(target, key)
      if (key === 'unsafe') return (...asked: unknown[]) => stopped((value as Sql)(...asked))
      if (key === 'file') return fileOf(target as Files, gate)
      return key === 'savepoint' ? savepointOf(value as Savepoint, gate) : value
    },
  })
}

/** postgres.js itself, whose transactions hand out an `sql` behind the gate. */
export function guardBegin<Client extends { begin?: unknown }>(client: Client, gate: Gate): Client {
  const begin = client.begin as (...asked: unknown[]) => unknown
  const guarded = (...asked: unknown[]): unknown => {
    const work = asked.pop() as (sql: object) => unknown
    return begin(...asked, (sql: object) => work(guardPostgresJs(sql, gate)))
  }
  return new Proxy(client, { get: (target, key) => (key === 'begin' ? guarded : Reflect.get(target, key)) })
}

function stopWhereSent(made: unknown, gate: Gate): unknown {
  const query = made as Partial<Sender>
  const { handler, strings } = query
  if (typeof handler !== 'function') return made
  const loop: Loop = { left: () => undefined, close: undefined }
  const guarded = (each: Sender): unknown => {
    const refused = refusal(gate, textOf(strings))
    if (refused !== undefined) return each.reject(refused)
    loop.left = countUntilAnswered(each, gate, loop.close)
    return handler(each)
  }
  // The handler carries a setting.
  query.handler = Object.assign(guarded, handler)
  const cursor = query.cursor?.bind(query)
  query.cursor = (...asked) => {
    const rows = cursor?.(...asked) as AsyncIterable<unknown> | Sender
    return Symbol.asyncIterator in rows ? leftAtOnce(rows, loop) : rows
  }
  return made
}

/** A loop over a cursor. */
interface Loop {
  /** Counts it no more. */
  left: () => void
  /** Closes a cursor that stays open when the closure ends: no ROLLBACK would be answered behind it. */
  close: (() => void) | undefined
}

/** Templates with parameters have their text in pieces. */
function textOf(strings: readonly string[] | undefined): string | undefined {
  return strings?.length === 1 ? strings[0] : strings?.join('$')
}

/** postgres.js closes the cursor of a loop that was left, but nobody can wait for that. */
function leftAtOnce(rows: AsyncIterable<unknown>, loop: Loop): AsyncIterable<unknown> {
  return {
    [Symbol.asyncIterator]: () => {
      const steps = rows[Symbol.asyncIterator]()
      loop.close = () => void steps.return?.()
      const end = async (): Promise<IteratorResult<unknown>> => {
        loop.left()
        return (await steps.return?.()) ?? { done: true, value: undefined }
      }
      return { next: () => steps.next(), return: end }
    },
  }
}

/** Returns how to stop counting. postgres.js sets `active` back at the answer, also for cursors, whose `resolve` it replaces. */
function countUntilAnswered(query: Sender, gate: Gate, close?: () => void): () => void {
  const operation = enter(gate, textOf(query.strings))
  if (close !== undefined) operation.close = close
  const answered = (): void => leave(gate, operation)
  let active = query.active
  Object.defineProperty(query, 'active', {
    configurable: true,
    get: () => active,
    set: (now: boolean) => {
      if (active && !now) answered()
      active = now
    },
  })
  const { resolve, reject } = query
  query.resolve = (value) => {
    answered()
    resolve(value)
  }
  query.reject = (error) => {
    answered()
    reject(error)
  }
  return answered
}

interface Files {
  file(path: PathOrFileDescriptor, ...rest: unknown[]): Sender
  unsafe(text: string): Sender
}

/** postgres.js reads the file and sends what it says by a way of its own. So it is read here, and sent as every other statement. */
function fileOf(sql: Files, gate: Gate): Files['file'] {
  return (path, ...rest) => {
    const query = sql.file(path, ...rest)
    const sender = sql.unsafe('')
    query.handler = (each) => {
      const what = `the file ${String(path)}`
      const refused = refusal(gate, what)
      if (refused !== undefined) return each.reject(refused)
      const operation = enter(gate, what)
      return readFile(path, 'utf8', (error, text) => {
        leave(gate, operation)
        if (error !== null) return each.reject(error)
        each.strings = [text]
        const late = refusal(gate, what)
        if (late !== undefined) return each.reject(late)
        countUntilAnswered(each, gate)
        return sender.handler(each)
      })
    }
    return query
  }
}

type Savepoint = (...asked: unknown[]) => Promise<unknown>

/**
 * A savepoint is gone with its transaction. If its work comes to an end after that, postgres.js never learns of it: for one that
 * failed, or had a statement that did, it would send `rollback to` on a connection that serves somebody else, who may have a
 * savepoint of the same name.
 */
function savepointOf(savepoint: Savepoint, gate: Gate): Savepoint {
  const nest: Savepoint = async (...asked) => {
    const isTemplate = Array.isArray((asked[0] as { raw?: unknown } | undefined)?.raw)
    const work = (isTemplate ? (sql: Sql) => sql(...asked) : asked.at(-1)) as (sql: object) => unknown
    const tooLate = Promise.withResolvers<unknown>()
    const guarded = async (sql: object): Promise<unknown> => {
      const made = async (): Promise<unknown> => {
        const result = work(guardPostgresJs(sql, gate))
        return await (Array.isArray(result) ? Promise.all(result) : result)
      }
      const done = made()
      await Promise.allSettled([done])
      if (gate.state === 'open') return await done
      tooLate.resolve(done)
      return await new Promise(() => undefined)
    }
    return await Promise.race([savepoint(...(isTemplate ? [] : asked.slice(0, -1)), guarded), tooLate.promise])
  }
  return (...asked) => track(gate, nestedTransaction, () => nest(...asked))
}
