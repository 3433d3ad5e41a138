/**
 * Prisma as a `Database` (from a PrismaClient) or as a `Tx` (from the client of an interactive transaction).
 *
 * Prisma's own limit on a transaction's length is lifted: it would end the transaction behind the closure's back, while
 * the server-side time-outs already bound each statement and each pause. A free connection is waited for as long as in a pool of
 * our own (`connect`), because Prisma's two seconds are over in any busy moment. Prisma reads every column by its type and knows
 * only common ones, so statements cast the others to text.
 *
 * Prisma's adapter for `pg` awaits a client before it listens to it. Make its pool yourself and give each client a listener, or a
 * connection that ends as it is handed out ends the process: `pool.on('connect', (client) => client.on('error', report))`.
 */
import type { Database, Isolation, Queryable, Tx } from '../query/database.ts'
import { enter, leave, nestedTransaction, refusal, track, type Gate } from '../transaction/gate.ts'
import { ormDatabase, ormTx, wrongHandle } from './orm-database.ts'
import { returnsRows } from './statement-kind.ts'

/** The part of a Prisma client that runs statements. */
export interface PrismaExecutor {
  $queryRawUnsafe(text: string, ...values: never[]): PromiseLike<unknown>
  $executeRawUnsafe(text: string, ...values: never[]): PromiseLike<number>
}

/** The part of a Prisma transaction client we use. */
export interface PrismaTransaction extends PrismaExecutor {
  // A PrismaClient has it, the client inside a transaction does not.
  readonly $connect?: never
}

type PrismaIsolation = 'ReadCommitted' | 'RepeatableRead' | 'Serializable'

/** The part of a PrismaClient we use. */
export interface PrismaDatabase<Native> extends PrismaExecutor {
  $connect(): Promise<void>
  $transaction<Result>(
    work: (client: Native) => Promise<Result>,
    options?: { maxWait?: number; timeout?: number; isolationLevel?: PrismaIsolation },
  ): Promise<Result>
}

/** A PrismaClient becomes a database; the client of an interactive transaction becomes that transaction. */
export function fromPrisma<Native extends PrismaExecutor>(prisma: PrismaDatabase<Native>): Database<Native>
export function fromPrisma<Native extends PrismaTransaction>(tx: Native): Tx<Native>
export function fromPrisma<Native extends PrismaExecutor>(
  handle: PrismaDatabase<Native> | Native,
): Database<Native> | Tx<Native> {
  if (typeof (handle as Partial<PrismaExecutor> | undefined)?.$queryRawUnsafe !== 'function') {
    throw wrongHandle('fromPrisma', 'a PrismaClient, or the tx of prisma.$transaction(async (tx) => …)')
  }
  if (!isDatabase(handle)) return ormTx(queryableOf(handle), handle)
  return ormDatabase<Native>({
    pool: handle,
    ...queryableOf(handle),
    begin: ({ isolation, gate }, work) =>
      guardClient(handle, gate).$transaction((native) => work(guardNesting(native, gate)), {
        isolationLevel: isolationLevels[isolation],
        maxWait: freeConnectionMs,
        timeout: longestTimerMs,
      }),
    connection: queryableOf,
    losesRollback: true,
  })
}

const isolationLevels: Readonly<Record<Isolation, PrismaIsolation>> = {
  'read committed': 'ReadCommitted',
  'repeatable read': 'RepeatableRead',
  serializable: 'Serializable',
}
const freeConnectionMs = 10_000
const longestTimerMs = 2_147_483_647

function isDatabase<Native extends PrismaExecutor>(handle: PrismaDatabase<Native> | Native): handle is PrismaDatabase<Native> {
  return typeof (handle as { $connect?: unknown }).$connect === 'function'
}

interface Extension {
  readonly query: { $allOperations(asked: PrismaOperation): Promise<unknown> }
}

interface PrismaOperation {
  readonly model?: string
  readonly operation: string
  readonly args: unknown
  readonly query: (args: unknown) => Promise<unknown>
}

/**
 * The client for one transaction. Prisma makes several statements of one operation, and looks only before the first whether the
 * transaction is under way: what it began is waited for, or the rest of it would run behind the ROLLBACK.
 */
function guardClient<Native>(prisma: PrismaDatabase<Native>, gate: Gate): PrismaDatabase<Native> {
  const extensible = prisma as PrismaDatabase<Native> & { $extends?(extension: Extension): PrismaDatabase<Native> }
  const $allOperations = async ({ model, operation: name, args, query }: PrismaOperation): Promise<unknown> => {
    const what = model === undefined ? rawText(args) : `${model}.${name}`
    const refused = refusal(gate, what)
    if (refused !== undefined) throw refused
    const operation = enter(gate, what)
    try {
      operation.settled = query(args)
      return await operation.settled
    } finally {
      leave(gate, operation)
    }
  }
  return extensible.$extends?.({ query: { $allOperations } }) ?? prisma
}

/** The text of a raw operation: written out, or a template. */
function rawText(args: unknown): unknown {
  if (Array.isArray(args)) return args[0]
  return (args as { readonly strings?: readonly string[] } | null)?.strings?.join('$')
}

type Nest = (asked: unknown, ...rest: unknown[]) => Promise<unknown>

/**
 * The client of the transaction, or of one nested in it. When the outer one fails Prisma rolls back one by one, and a nested one that
 * returned in between would commit all of it: past the end it can only fail.
 */
function guardNesting<Native extends object>(native: Native, gate: Gate): Native {
  const nest = (native as { $transaction?: Nest }).$transaction
  if (nest === undefined) return native
  const guarded: Nest = async (asked, ...rest) => {
    if (typeof asked !== 'function') return await track(gate, nestedTransaction, () => nest.call(native, asked, ...rest))
    const work = async (inner: object): Promise<unknown> => {
      const result: unknown = await asked(guardNesting(inner, gate))
      const late = refusal(gate, nestedTransaction)
      if (late !== undefined) throw late
      return result
    }
    return await track(gate, nestedTransaction, () => nest.call(native, work, ...rest))
  }
  return new Proxy(native, { get: (target, key) => (key === '$transaction' ? guarded : Reflect.get(target, key)) })
}

function queryableOf(handle: PrismaExecutor): Queryable {
  return {
    query: async (text, values = []) => {
      const bound = values as never[]
      try {
        if (!returnsRows(text)) return { rows: [], rowCount: await handle.$executeRawUnsafe(text, ...bound) }
        const rows = (await handle.$queryRawUnsafe(text, ...bound)) as readonly unknown[]
        return { rows, rowCount: rows.length }
      } catch (error) {
        throw serverError(error) ?? error
      }
    },
  }
}

interface DriverError {
  readonly originalCode?: string
  readonly originalMessage?: string
  readonly constraint?: { readonly index?: string }
}

/** What the server said, in its own words: Prisma's message starts with the place of the call. */
function serverError(error: unknown): Error | undefined {
  const { meta } = error as { meta?: { driverAdapterError?: { cause?: DriverError } } }
  const { originalCode, originalMessage, constraint } = meta?.driverAdapterError?.cause ?? {}
  if (originalCode === undefined || originalMessage === undefined) return undefined
  return Object.assign(new Error(originalMessage, { cause: error }), { code: originalCode, constraint: constraint?.index })
}
