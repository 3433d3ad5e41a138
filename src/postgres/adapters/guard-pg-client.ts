/**
 * A node-postgres client for the closure of one transaction: it is the client itself, but for `release`, which is left to whoever
 * borrowed it, and for statements. Those are sent one after the other, counted until they are answered, and refused after the end, each in
 * the way that it was sent: by a promise, by a callback, or by the cursor or stream that was submitted.
 */
import { WaybillError } from '../../core/errors.ts'
import type { PgClient } from './borrow-client.ts'
import { enter, inLine, inTurn, leave, passOn, refusal, type Gate } from '../transaction/gate.ts'

/** The client, behind the gate. */
export function guardPgClient<Client extends PgClient>(client: Client, gate: Gate): Client {
  const query = (...asked: Parameters<PgClient['query']>): unknown => {
    const [first, ...rest] = asked as readonly unknown[]
    if (isSubmittable(first)) return submit(client, gate, first, rest)
    const own = (first as { readonly callback?: unknown } | null)?.callback
    const callback = rest.find((each) => typeof each === 'function') ?? own
    if (typeof callback === 'function') return sendWithCallback(client, gate, asked, callback as Callback)
    return inLine(gate, textOf(first), () => client.query(...asked))
  }
  return new Proxy(client, {
    get: (target, key) => (key === 'query' ? query : key === 'release' ? refuseRelease : Reflect.get(target, key)),
  })
}

/** What node-postgres has sent and has still to send, as its releases name it. */
interface Queues {
  readonly _activeQuery?: unknown
  readonly _queryQueue?: readonly unknown[]
  readonly _sentQueryQueue?: readonly unknown[]
  readonly activeQuery?: unknown
  readonly queryQueue?: readonly unknown[]
}

const endsTransaction = /^\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+(?:work|transaction))?\s+to\b))\b/i

/** Whether what ends the transaction was given to the client, so that a statement now would come behind it. */
export function isEnding(client: object): boolean {
  const { _activeQuery, _queryQueue, _sentQueryQueue } = client as Queues
  // The older names warn where there are newer ones.
  const { activeQuery, queryQueue } = (_queryQueue === undefined ? client : {}) as Queues
  const given = [_activeQuery, activeQuery, ...(_sentQueryQueue ?? []), ...(_queryQueue ?? queryQueue ?? [])]
  return given.some((each) => endsTransaction.test(String(textOf(each ?? null))))
}

/** Inside of the transaction somebody else would go on with it; after it the client may serve somebody else. */
function refuseRelease(): never {
  throw new WaybillError(
    'NOT_A_TRANSACTION',
    'tx.native.release(): transaction() gives its connection back by itself, when it has ended. Leave the call out.',
  )
}

type Callback = (error: unknown, ...rest: unknown[]) => unknown
type Send = (...asked: readonly unknown[]) => unknown

function textOf(asked: unknown): unknown {
  return typeof asked === 'string' ? asked : (asked as { readonly text?: unknown } | null)?.text
}

/** Sends in turn what does not answer by a promise. `refuse` says how it hears that it came too late. */
function sendInTurn(
  gate: Gate,
  text: unknown,
  { send, refuse, close }: { send: (answered: () => void) => void; refuse: (error: Error) => void; close?: () => void },
): void {
  const refused = refusal(gate, text)
  if (refused !== undefined) return queueMicrotask(() => refuse(refused))
  const operation = enter(gate, text)
  let isDone = false
  const answered = (): void => {
    if (isDone) return
    isDone = true
    leave(gate, operation)
    passOn(gate)
  }
  inTurn(gate, () => {
    const late = refusal(gate, text)
    if (late !== undefined) {
      answered()
      return refuse(late)
    }
    if (close !== undefined) operation.close = close
    try {
      return send(answered)
    } catch (error) {
      answered()
      throw error
    }
  })
}

function sendWithCallback(client: PgClient, gate: Gate, asked: readonly unknown[], callback: Callback): void {
  const [first, ...rest] = asked
  sendInTurn(gate, textOf(first), {
    send: (answered) => {
      const told: Callback = (...answer) => {
        answered()
        return callback(...answer)
      }
      const values = rest.filter((each) => typeof each !== 'function')
      const query: Send = client.query.bind(client) as Send
      query(typeof first === 'string' ? first : { ...(first as object), callback: undefined }, ...values, told)
    },
    refuse: (error) => void callback(error),
  })
}

/** What `pg` calls a submittable: a query object, a cursor or a stream. Its connection is its own until the server is ready again. */
interface Submittable {
  readonly text?: unknown
  submit(...args: unknown[]): unknown
  handleReadyForQuery: (...args: unknown[]) => unknown
  handleError: (error: unknown, ...rest: unknown[]) => unknown
  close?(): unknown
  destroy?(): unknown
}

function isSubmittable(asked: unknown): asked is Submittable {
  return typeof (asked as Partial<Submittable> | null)?.submit === 'function'
}

function submit(client: PgClient, gate: Gate, query: Submittable, rest: readonly unknown[]): Submittable {
  const { handleReadyForQuery, handleError } = query
  const text = query.text ?? (query as { readonly cursor?: Submittable }).cursor?.text ?? 'a cursor'
  sendInTurn(gate, text, {
    send: (answered) => {
      query.handleReadyForQuery = (...args) => {
        answered()
        return handleReadyForQuery.apply(query, args)
      }
      query.handleError = (...args) => {
        answered()
        return handleError.apply(query, args)
      }
      const send: Send = client.query.bind(client) as Send
      send(query, ...rest)
    },
    refuse: (error) => void handleError.call(query, error),
    close: () => void closeQuietly(query),
  })
  return query
}

/** Behind a cursor that nobody closed no ROLLBACK would be answered. */
async function closeQuietly(query: Submittable): Promise<void> {
  try {
    await (query.close?.() ?? query.destroy?.())
  } catch {
    // Then the connection is thrown away, because its ROLLBACK is not answered.
  }
}
