/**
 * The `sql` of a postgres.js transaction for the closure that it was begun for: statements after its end are refused.
 *
 * Its statements are sent when they are awaited, not when they are written, so each is stopped where it would be sent.
 * Fragments and helpers are no statements and always work.
 */
import { readFile, type PathOrFileDescriptor } from 'node:fs'

import { endedTransaction, letsThrough, type Gate } from './gate.ts'

type Sql = (...parts: unknown[]) => unknown

interface Sender {
  strings: readonly string[]
  handler(query: Sender): unknown
  reject(error: Error): void
}

/** The `sql` of a transaction, behind the gate. */
export function guardPostgresJs<Native extends object>(native: Native, gate: Gate): Native {
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
  const guarded = (each: Sender): unknown => {
    if (letsThrough(gate, strings?.length === 1 ? strings[0] : undefined)) return handler(each)
    return each.reject(endedTransaction())
  }
  // The handler carries a setting.
  query.handler = Object.assign(guarded, handler)
  return made
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
      if (gate.state !== 'open') return each.reject(endedTransaction())
      return readFile(path, 'utf8', (error, text) => {
        if (error !== null) return each.reject(error)
        each.strings = [text]
        return gate.state === 'open' ? sender.handler(each) : each.reject(endedTransaction())
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
  return async (...asked) => {
    if (gate.state !== 'open') throw endedTransaction()
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
}
