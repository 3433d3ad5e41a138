/**
 * The `sql` of a postgres.js transaction for the closure that it was begun for: statements after its end are refused.
 *
 * Its statements are sent when they are awaited, not when they are written, so each is stopped where it would be sent.
 * Fragments and helpers are no statements and always work.
 */
import { endedTransaction, letsThrough, type Gate } from './gate.ts'

type Sql = (...parts: unknown[]) => unknown

interface Sender {
  readonly strings: readonly string[]
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
      if (key === 'unsafe' || key === 'file') return (...asked: unknown[]) => stopped((value as Sql)(...asked))
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

type Savepoint = (...asked: unknown[]) => Promise<unknown>

/**
 * A savepoint is gone with its transaction. If its work fails after that, postgres.js never learns of it: it would send
 * `rollback to` on a connection that serves somebody else, who may have a savepoint of the same name.
 */
function savepointOf(savepoint: Savepoint, gate: Gate): Savepoint {
  return async (...asked) => {
    if (gate.state !== 'open') throw endedTransaction()
    const isTemplate = Array.isArray((asked[0] as { raw?: unknown } | undefined)?.raw)
    const work = (isTemplate ? (sql: Sql) => sql(...asked) : asked.at(-1)) as (sql: object) => unknown
    const tooLate = Promise.withResolvers<never>()
    const guarded = async (sql: object): Promise<unknown> => {
      try {
        const result = work(guardPostgresJs(sql, gate))
        return await (Array.isArray(result) ? Promise.all(result) : result)
      } catch (error) {
        if (gate.state === 'open') throw error
        tooLate.reject(error)
        return await new Promise(() => undefined)
      }
    }
    return await Promise.race([savepoint(...(isTemplate ? [] : asked.slice(0, -1)), guarded), tooLate.promise])
  }
}
