/**
 * A node-postgres client for the closure of one transaction: it is the client itself, but for statements after the end and for
 * `release`, which is left to whoever borrowed it.
 *
 * Such statements are refused in the way that they were sent: by a promise, by a callback, or to the cursor or stream that was submitted.
 */
import { WaybillError } from '../core/errors.ts'
import type { PgClient } from './borrow-client.ts'
import { endedTransaction, letsThrough, type Gate } from './gate.ts'

/** The client, behind the gate. */
export function guardPgClient<Client extends PgClient>(client: Client, gate: Gate): Client {
  const query = (...asked: Parameters<PgClient['query']>): unknown =>
    letsThrough(gate, textOf(asked[0])) ? client.query(...asked) : refuse(asked)
  return new Proxy(client, {
    get: (target, key) => (key === 'query' ? query : key === 'release' ? refuseRelease : Reflect.get(target, key)),
  })
}

/** Inside of the transaction somebody else would go on with it; after it the client may serve somebody else. */
function refuseRelease(): never {
  throw new WaybillError(
    'NOT_A_TRANSACTION',
    'tx.native.release(): transaction() gives its connection back by itself, when it has ended. Leave the call out.',
  )
}

/** A query config, or what `pg` calls a submittable. */
interface Asked {
  readonly text?: unknown
  readonly callback?: unknown
  readonly submit?: unknown
  handleError?(error: Error): void
}

function textOf(asked: unknown): unknown {
  return typeof asked === 'string' ? asked : (asked as Asked | undefined)?.text
}

function refuse(asked: readonly unknown[]): unknown {
  const error = endedTransaction()
  const first = asked[0] as Asked | undefined
  if (typeof first?.submit === 'function') {
    queueMicrotask(() => first.handleError?.(error))
    return first
  }
  const callback = asked.find((each) => typeof each === 'function') ?? first?.callback
  if (typeof callback !== 'function') return Promise.reject(error)
  queueMicrotask(() => void callback(error))
  return undefined
}
