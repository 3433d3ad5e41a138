/**
 * Reads of projections that never show less than the reader knows.
 *
 * Guarantee: a row that is returned for a token holds that write or a later one. Position and row are read in one statement, so
 * neither a rebuild that is swapped in nor a replica that is behind can come between them. A projection that is not there yet
 * is awaited for a bounded time, off the pool; then the owner is asked (`otherwise`), or NOT_YET is thrown.
 *
 * A database that is out of reach, because it refuses or does not answer, has not shown the write either: whoever has a token waits
 * on and asks again while there is time, and NOT_YET has the cause. Without one nothing is awaited, and the error is thrown.
 */
import type { Clock } from '../core/service/clock.ts'
import { isWaybillError, WaybillError } from '../core/errors.ts'
import { refuseUnknown } from '../core/options.ts'
import type { AnyStream } from '../core/event/stream.ts'
import type { AggregateVersion, Tokens } from '../core/event/token.ts'
import type { Version } from '../core/event/version.ts'
import { one, rows, type Interruptible } from '../postgres/query/database.ts'
import { isUnavailable } from '../postgres/query/sql-state.ts'
import { withDeadlines } from '../postgres/transaction/deadline.ts'
import type { Projection } from './projection.ts'
import { readPositions, readRow, type AggregateName, type ReadRow, type ReadScope, type RowOf } from './reads.sql.ts'
import { newer, raiseToRows, rowOf } from './row-versions.ts'
import { absurd, isAbsurd, lookMs, notYet, overloaded, WaitingRoom } from './waiting-room.ts'

export interface ReadsOptions extends ReadScope {
  readonly db: Interruptible
  /** The streams that move the consumer's positions. */
  readonly streams: readonly AnyStream[]
  /** What can be read. Asked when it is needed. */
  readonly projections: () => readonly Projection[]
  readonly tokens: Tokens
  /** `needed` if projected rows have the only trace of their versions. */
  readonly positions: 'every' | 'needed'
  /** How long a reader waits unless it says otherwise. */
  readonly waitMs: number
  /** The pause between two looks at what is awaited. */
  readonly waitPollMs: number
  /** Readers that wait at once, at most. */
  readonly maxWaiters: number
  /** Readers for whom the owner is asked at once, at most. */
  readonly maxFallbacks: number
  readonly clock: Clock
}

export interface WaitForOptions {
  /** How long to wait, at most. 0 only looks. @default 500 */
  readonly waitMs?: number
  /** Ends the wait early. */
  readonly signal?: AbortSignal | undefined
}

/** Why the projection could not answer. */
export interface NotServed {
  /** `NOT_YET`, or `OVERLOADED` if too many wait already. */
  readonly code: 'NOT_YET' | 'OVERLOADED'
  readonly error: WaybillError
}

export interface ReadOptions<Other = never> extends WaitForOptions {
  /** A token of a write: nothing older is shown. One of another aggregate of the stream says nothing about this one. @default whatever is there */
  readonly atLeast?: string | undefined
  /** Asks the owner instead, when the projection is not there in time; beyond `maxFallbacks` OVERLOADED is thrown. @default NOT_YET is thrown */
  readonly otherwise?: ((why: NotServed) => Promise<Other> | Other) | undefined
  /** Which table, if the consumer projects the stream to several. */
  readonly table?: string
}

/** A row of a projection, as the driver returns it. */
export type ProjectionRow = Readonly<Record<string, unknown>>

export interface Reads {
  /** Resolves when the consumer has applied the write that the token stands for; NOT_YET at the deadline. */
  waitFor(token: string, options?: WaitForOptions): Promise<void>
  /** The row of one aggregate, `undefined` if there is none or it is deleted, or what `otherwise` returned. */
  read<Row extends object = ProjectionRow, Other = never>(
    stream: AnyStream,
    aggregateId: string,
    options?: ReadOptions<Other>,
  ): Promise<Row | undefined | Other>
  /** Tells readers of this process that a transaction moved these aggregates. */
  committed(aggregates: Iterable<AggregateName>): void
}

export function createReads(options: ReadsOptions): Reads {
  const { db, clock, consumer } = options
  const heard = { ...options, db: withDeadlines(db, { statementMs: lookMs, clock }) }
  // The room has its own end for a look, and takes answers that come later; but a connection that is dead is not kept for them.
  const patient = { ...options, db: withDeadlines(db, { statementMs: 6 * lookMs, clock }) }
  const look = (aggregates: readonly AggregateName[]): ReturnType<typeof versionsOf> => versionsOf(patient, aggregates)
  const fallbacks = bounded(options.maxFallbacks, tooManyFallbacks)
  // Also while they ask for their row: a flood of tokens must not queue for connections.
  const holders = bounded(options.maxWaiters, overloaded)
  const room = new WaitingRoom({ look, pollMs: options.waitPollMs, maxWaiters: options.maxWaiters, clock })
  return {
    committed: (aggregates) => room.committed(aggregates),
    waitFor: async (token, given = {}) => {
      refuseUnknown(`consumer ${consumer}: waitFor`, given, ['waitMs', 'signal'])
      const at = decode(options, token)
      witnessOf(options, at)
      const { waitMs = options.waitMs, signal } = given
      if (checkWait(waitMs) > 0) return await room.wait(at, { waitMs, signal })
      const [seen = 0n] = await versionsOf(heard, [at]).catch((error: unknown) => {
        throw isOutOfReach(error) ? notYet(at, 0n, error) : error
      })
      if (seen < at.version) throw isAbsurd(at.version, seen) ? absurd(at) : notYet(at, seen)
    },
    read: async (stream, aggregateId, given = {}) => {
      refuseUnknown(`consumer ${consumer}: read`, given, ['atLeast', 'waitMs', 'signal', 'otherwise', 'table'])
      const { otherwise } = given
      try {
        const ask = (): ReturnType<typeof readRowOf> => readRowOf(heard, room, { stream, aggregateId, given })
        return (await (given.atLeast === undefined ? ask() : holders(ask))) as never
      } catch (error) {
        if (otherwise === undefined) throw error
        if (isWaybillError(error, 'NOT_YET')) return await fallbacks(() => otherwise({ code: 'NOT_YET', error }), error)
        if (isWaybillError(error, 'OVERLOADED')) return await fallbacks(() => otherwise({ code: 'OVERLOADED', error }), error)
        throw error
      }
    },
  }
}

/** A projection that lags, or tokens that somebody makes up, must not turn all readers on the owner. */
function tooManyFallbacks(most: number, cause?: WaybillError): WaybillError {
  const message = `The projection is not there yet, and ${most} readers ask the owner already. Ask again later, or raise maxFallbacks.`
  return new WaybillError('OVERLOADED', message, { cause })
}

/** Runs so many at once, and refuses the next one. */
function bounded(
  most: number,
  refusal: (most: number, cause?: WaybillError) => WaybillError,
): <Result>(ask: () => Promise<Result> | Result, cause?: WaybillError) => Promise<Result> {
  let underWay = 0
  return async (ask, cause) => {
    if (underWay >= most) throw refusal(most, cause)
    underWay += 1
    try {
      const answer = ask()
      // One that is there has cost nothing by the time that the next reader asks.
      return answer instanceof Promise ? await answer : answer
    } finally {
      underWay -= 1
    }
  }
}

interface Wanted {
  readonly stream: AnyStream
  readonly aggregateId: string
  readonly given: ReadOptions<unknown>
}

async function versionsOf(
  options: ReadsOptions,
  aggregates: readonly AggregateName[],
): Promise<readonly (Version | undefined)[]> {
  const versions: (Version | undefined)[] = aggregates.map(() => undefined)
  for (const { place, version } of await rows(options.db, readPositions(options, aggregates)))
    versions[place - 1] = BigInt(version)
  if (options.positions === 'needed') await raiseToRows(options, aggregates, versions)
  return versions
}

async function readRowOf(options: ReadsOptions, room: WaitingRoom, wanted: Wanted): Promise<ProjectionRow | undefined> {
  const { db, clock } = options
  const { atLeast, waitMs = options.waitMs, signal } = wanted.given
  const projection = projectionOf(options, wanted)
  const shownToken = atLeast === undefined ? undefined : decode(options, atLeast)
  const at = isOfAnother(wanted, shownToken) ? undefined : shownToken
  const row = { projection, key: projection.keyOf(wanted.aggregateId) }
  const witness = at === undefined ? undefined : witnessOf(options, at)
  const deadlineMs = clock.monotonicMs() + checkWait(waitMs)
  const ask = (): Promise<ReadRow> => one(db, readRow(options, row, { awaited: at, witness }))
  if (at === undefined) return shown(await ask())
  let seen: Version = 0n
  for (let isTold = false; ; isTold = true) {
    let outage: unknown
    try {
      const found = await ask()
      seen = newer(BigInt(found.waybill_position ?? 0), BigInt(found.waybill_version ?? 0))
      if (seen >= at.version) return shown(found)
      if (isAbsurd(at.version, seen)) throw absurd(at)
    } catch (error) {
      if (!isOutOfReach(error)) throw error
      outage = error
    }
    const leftMs = deadlineMs - clock.monotonicMs()
    if (leftMs <= 0) throw notYet(at, seen, outage)
    // Told that it is there, yet not here: behind one address there may be several replicas, and this one is not as far.
    if (isTold) await clock.sleep(Math.min(options.waitPollMs, leftMs), signal)
    await room.wait(at, { waitMs: leftMs, signal })
  }
}

/** A row is that of one aggregate of its stream: proof of a write of another one says nothing about it. */
function isOfAnother({ stream, aggregateId }: Wanted, at: AggregateVersion | undefined): boolean {
  return at !== undefined && at.aggregateType === stream.aggregateType && at.aggregateId !== aggregateId
}

/** The database refuses, or does not answer: that says nothing about the projection. */
function isOutOfReach(error: unknown): boolean {
  return isWaybillError(error, 'UNAVAILABLE') || isUnavailable(error)
}

function shown(found: ReadRow): ProjectionRow | undefined {
  return found.waybill_found ? withoutOurs(found) : undefined
}

function withoutOurs({
  waybill_position: _position,
  waybill_version: _version,
  waybill_found: _found,
  ...row
}: ReadRow): ProjectionRow {
  return row
}

function projectionOf({ consumer, projections }: ReadsOptions, { stream, given }: Wanted): Projection {
  const aggregateType = (stream as Partial<AnyStream> | undefined)?.aggregateType ?? typeof stream
  const all = projections().filter((each) => each.stream === stream)
  const named = given.table === undefined ? all : all.filter(({ tableText }) => tableText === given.table)
  const [projection] = named
  if (projection === undefined) {
    const which = given.table === undefined ? '' : ` to ${given.table}`
    throw new WaybillError(
      'UNKNOWN_NAME',
      `consumer ${consumer}: it does not project stream ${aggregateType}${which}. Register it with project(…).`,
    )
  }
  if (named.length > 1) {
    const tables = named.map(({ tableText }) => tableText).join(', ')
    throw new WaybillError(
      'INVALID_OPTION',
      `consumer ${consumer}: it projects stream ${aggregateType} to ${tables}. Say which with \`table\`.`,
    )
  }
  return projection
}

/** A token that is ours, of a stream that this consumer reads: for any other it would wait in vain. */
function decode({ tokens, streams, consumer }: ReadsOptions, token: string): AggregateVersion {
  const at = tokens.decode(token)
  if (!streams.some(({ aggregateType }) => aggregateType === at.aggregateType))
    throw refused(`consumer ${consumer} does not read the stream that it is about`)
  // Postgres takes no NUL: one such token would fail the look for everybody who waits.
  if (at.aggregateId.includes('\u0000')) throw refused('it names no aggregate')
  return at
}

/** The row that vouches for a token. Found before anybody waits: a `keyOf` that throws in the look fails it for everybody. */
function witnessOf({ positions, projections }: ReadsOptions, at: AggregateVersion): RowOf | undefined {
  if (positions === 'every') return undefined
  try {
    return rowOf(projections(), at)
  } catch (error) {
    throw refused('keyOf makes no key of the id in it', error)
  }
}

function checkWait(waitMs: number): number {
  if (Number.isFinite(waitMs) && waitMs >= 0) return waitMs
  throw new WaybillError('INVALID_OPTION', `waitMs: must be a number, at least 0, got ${waitMs}.`)
}

function refused(why: string, cause?: unknown): WaybillError {
  return new WaybillError('INVALID_INPUT', `Consistency token refused: ${why}. Pass the token as the write returned it.`, {
    cause,
  })
}
