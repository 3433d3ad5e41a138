/**
 * Rebuilds a consumer's projections beside live traffic: a new generation in shadow tables, compared, then swapped in.
 *
 *   begin ──▶ fed until it is as far as the live generation with every aggregate ──▶ [compare] ──▶ [swap] ──▶ [drop old]
 *
 * The new generation has positions of its own, so nothing of the live one's memory swallows the replay. Handlers are not
 * called: what they did is done, and nothing is emitted. At the swap writers wait, the new generation is as far as the live
 * one with every aggregate, and the live consumer goes on with the same inbox on the new table. Killed anywhere, it is called
 * again and goes on from the saved cursor.
 */
import type { Consumer } from '../../consumer/consumer.ts'
import { inboxTables, registerConsumer } from '../../consumer/tables/inbox.sql.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { errorMessage, WaybillError } from '../../core/errors.ts'
import { newId } from '../../core/event/id.ts'
import { refuseUnknown, resolve, wholeBetween } from '../../core/options.ts'
import { execute, first, one, rows, type Database, type Queryable } from '../../postgres/query/database.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import { findOperations, forgetProgress, saveOperation, startOperation, type OperationRow } from '../../postgres/operation.sql.ts'
import { assertSchema } from '../../postgres/schema/deployment.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { assertProjectionTable } from '../../projection/projection-table.ts'
import type { Transport } from '../../transport/port/transport.ts'
import { parseFrom, showFrom, seekerOf } from './source.ts'
import { runRebuild, subscriptionOf, topicsOf, type RebuildProgress, type StartedRebuild } from './run.ts'
import { compareShadows, createShadows, shadowsOf, type Comparison } from './shadow.ts'
import { swapRebuild } from './swap.ts'
import { deleteLeftovers, leftoverBatch, lockRegister, setNextGeneration } from './rebuild.sql.ts'
import { dropTable } from './tables.sql.ts'

export interface RebuildOptions {
  readonly consumer: Consumer
  /** `'outbox'`, `'earliest'`, `'snapshot:<name>'`, a date or a time with its zone. @default what the rebuild under way was started with */
  readonly from?: string | undefined
  /** The broker, for every `from` but `'outbox'`. */
  readonly transport?: Pick<Transport, 'receive' | 'seek' | 'seekToSnapshot' | 'unsubscribe'> | undefined
  /** Where the owner's outbox is. @default the consumer's own database and schema */
  readonly owner?: { readonly db: Queryable; readonly schema: string } | undefined
  /** Compare row by row when the new generation is there. @default false */
  readonly compare?: boolean
  /** Swap when the new generation is there; with `compare`, only if it lacks nothing and nothing differs. @default false */
  readonly swap?: boolean
  /** Who does it, for the audit log. */
  readonly actor: string
  /** Ends the work early; calling again goes on with it. */
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: RebuildProgress) => void
  /**
   * Given up when it is not there and has not got on for this long: nothing more of what it reads could be applied, or what is
   * missing has not become less, whatever is written meanwhile. A pause of the consumer does not count. @default 120_000
   */
  readonly stallMs?: number
  /** The pause between two looks at the progress. @default 1_000 */
  readonly pollMs?: number
  /** The longest time that writers wait for the swap; readers wait 3 s at most for each table and view. @default 3_000 */
  readonly swapWaitMs?: number
  /**
   * Lets rows go with the old table that the new one lacks, or has older, if the consumer has no position of their aggregates: what
   * a defect left, or what was under keys that `keyOf` makes no more. Otherwise they refuse the swap. @default false
   */
  readonly dropUnknown?: boolean
  readonly clock?: Clock
}

export interface RebuildReport {
  readonly operationId: string
  readonly generation: number
  readonly aggregates: number
  readonly comparisons: readonly Comparison[]
  /** `false` if it was not asked for, or if the comparison found differences. */
  readonly swapped: boolean
  /** The tables that were replaced; `dropReplaced` removes them. */
  readonly replaced: readonly string[]
  /** Rows that `dropUnknown` let go, counted up to 10,000 in each table. The replaced table has them until it is dropped. */
  readonly droppedRows: number
  /** What could not be removed after the swap, and why: `abandonRebuild` removes it. `undefined` if nothing failed. */
  readonly leftover: string | undefined
}

const optionNames =
  'consumer from transport owner compare swap actor signal onProgress stallMs pollMs swapWaitMs dropUnknown clock'.split(' ')

/** Begins a rebuild, or goes on with the one under way. */
export async function rebuild(options: RebuildOptions): Promise<RebuildReport> {
  refuseUnknown('rebuild', options, optionNames)
  const given = { swapWaitMs: options.swapWaitMs }
  // What no transaction takes is refused before hours of work; and to PostgreSQL 0 is a wait without end.
  const { swapWaitMs } = resolve('rebuild', { swapWaitMs: 3_000 }, given, { swapWaitMs: wholeBetween(1, 2_147_483_647) })
  const { consumer, actor, compare = false, swap = false } = options
  const started = await begin(options)
  const { db, scope, shadows, operationId } = started
  const running = runRebuild(started, {
    transport: options.transport,
    owner: options.owner ?? { db, schema: consumer.settings.schema },
    signal: options.signal ?? new AbortController().signal,
    onProgress: options.onProgress ?? (() => undefined),
    stallMs: options.stallMs ?? 120_000,
    pollMs: options.pollMs ?? 1_000,
    clock: options.clock ?? systemClock,
  })
  try {
    const { total, reached } = await running.reached()
    const comparisons = compare ? await compareShadows(db, shadows) : []
    const onTheirWay = total - reached
    const report = { operationId, generation: scope.next, aggregates: total, comparisons }
    if (!swap || comparisons.some((each) => differs(each, onTheirWay))) {
      return { ...report, swapped: false, replaced: [], droppedRows: 0, leftover: undefined }
    }
    const { dropUnknown = false } = options
    const swapped = await swapRebuild(started, { running, actor, swapWaitMs, dropUnknown })
    return { ...report, swapped: true, ...swapped, leftover: await cleanUp(started, options) }
  } finally {
    await running.stop()
  }
}

/**
 * Gives a rebuild up: its shadows, its memory and its subscription are removed, and what earlier ones left that were killed at
 * their end. `false` if none is under way.
 */
export async function abandonRebuild(options: Pick<RebuildOptions, 'consumer' | 'actor' | 'transport'>): Promise<boolean> {
  const { consumer, actor } = options
  const { db, schema, name } = consumer.settings
  const tables = inboxTables(schema)
  const abandoned = await transaction(db, async (tx) => {
    const register = await first(tx, lockRegister(tables, name))
    const next = register?.next_generation ?? undefined
    if (next === undefined) return false
    const operation = operationOf(await rows(tx, findRebuilds(consumer)), next)
    for (const { shadow } of shadowsOf(consumer.routes(), next)) await execute(tx, dropTable(shadow.tableText))
    await execute(tx, setNextGeneration(tables, name, null))
    if (operation !== undefined) await execute(tx, saveOperation(schema, operation, { state: 'cancelled' }))
    const details = { consumer: name, generation: next }
    await one(tx, insertAudit(schema, { actor, action: 'rebuild.abandon', details }))
    return true
  })
  await removeLeftovers({ db: db, scope: { tables, consumer: name } })
  const ended = (await rows(db, findRebuilds(consumer))).filter(({ state }) => state !== 'running').map(argumentsOf)
  const generations = ended.filter(({ from }) => from !== 'outbox').map(({ generation }) => generation)
  await unsubscribe({ ...options, generations })
  return abandoned
}

/** Drops the tables that earlier rebuilds of the consumer replaced; returns their names. */
export async function dropReplaced({ consumer, actor }: Pick<RebuildOptions, 'consumer' | 'actor'>): Promise<readonly string[]> {
  const { db, schema, name } = consumer.settings
  const tables = inboxTables(schema)
  return await transaction(db, async (tx) => {
    await first(tx, lockRegister(tables, name))
    const dropped: string[] = []
    for (const operation of await rows(tx, findRebuilds(consumer))) {
      const { id } = operation
      const replaced = replacedBy(operation)
      if (replaced.length === 0) continue
      for (const table of replaced) await execute(tx, dropTable(table))
      await execute(tx, forgetProgress(schema, id, 'replaced'))
      dropped.push(...replaced)
    }
    const details = { consumer: name, tables: dropped }
    if (dropped.length > 0) await one(tx, insertAudit(schema, { actor, action: 'rebuild.drop', details }))
    return dropped
  })
}

/** What `abandonRebuild` and `dropReplaced` would find. */
export interface RebuildLeftovers {
  /** The tables of the rebuild under way; `undefined` if none is. */
  readonly shadows: readonly string[] | undefined
  /** The tables that earlier rebuilds replaced. */
  readonly replaced: readonly string[]
}

/** Looks at what rebuilds of the consumer have made and left; changes nothing. */
export async function rebuildLeftovers(consumer: Consumer): Promise<RebuildLeftovers> {
  const { db, schema, name } = consumer.settings
  const tables = inboxTables(schema)
  const next = (await first(db, lockRegister(tables, name)))?.next_generation ?? undefined
  const shadows = next === undefined ? undefined : shadowsOf(consumer.routes(), next).map(({ shadow }) => shadow.tableText)
  return { shadows, replaced: (await rows(db, findRebuilds(consumer))).flatMap(replacedBy) }
}

function findRebuilds({ settings }: Consumer): Statement<OperationRow> {
  return findOperations(settings.schema, 'rebuild', ['consumer', settings.name])
}

function replacedBy({ progress }: OperationRow): readonly string[] {
  return (JSON.parse(progress) as { readonly replaced?: readonly string[] }).replaced ?? []
}

/** Register, operation and shadows come into being together; what is there already is taken up again. */
async function begin({ consumer, transport, from: given, actor }: RebuildOptions): Promise<StartedRebuild> {
  const { db, schema, service, deploymentId, name, positions } = consumer.settings
  const routes = consumer.routes()
  const tables = inboxTables(schema)
  if (routes.projections.length === 0)
    throw new WaybillError('INVALID_OPTION', `consumer ${name}: it has no projections, so there is nothing to rebuild.`)
  // What the new tables must have before they are swapped in is told by the positions of the live ones.
  if (positions === 'needed')
    throw new WaybillError(
      'REFUSED',
      `consumer ${name}: positions: 'needed' leaves no positions to compare a rebuild with. Project to a new table with a consumer of another name.`,
    )
  const target = given === undefined ? undefined : parseFrom(given)
  const from = target === undefined ? undefined : showFrom(target)
  await assertSchema(db, { schema, service, deploymentId })
  for (const projection of routes.projections) await assertProjectionTable(db, projection)
  const types = [...new Set(routes.projections.map(({ stream }) => stream.aggregateType))]
  await one(db, registerConsumer({ tables, consumer: name }))
  return await transaction(db, async (tx) => {
    const { generation, next_generation: underWay, unused } = await one(tx, lockRegister(tables, name))
    const next = underWay ?? unused
    const shadows = shadowsOf(routes, next)
    const common = { consumer, db: db, shadows, scope: { tables, consumer: name, generation, next, types } }
    if (underWay !== null)
      return { ...common, ...resumed(name, from, operationOf(await rows(tx, findRebuilds(consumer)), underWay)) }
    if (target === undefined || from === undefined)
      throw new WaybillError(
        'INVALID_OPTION',
        `consumer ${name}: no rebuild is under way. Say where from: earliest, a time, snapshot:<name>, or outbox.`,
      )
    // What the broker cannot do is refused before there are tables to abandon.
    if (target !== 'outbox' && transport !== undefined) seekerOf(transport, target, topicsOf(shadows))
    const operationId = newId()
    const details = { consumer: name, from, generation: next }
    await execute(tx, setNextGeneration(tables, name, next))
    await execute(tx, startOperation(schema, 'rebuild', { id: operationId, arguments: details }))
    await createShadows(tx, shadows)
    await one(tx, insertAudit(schema, { actor, action: 'rebuild.begin', details }))
    return { ...common, operationId, from, cursor: undefined }
  })
}

function resumed(
  consumer: string,
  from: string | undefined,
  operation: OperationRow | undefined,
): Pick<StartedRebuild, 'operationId' | 'from' | 'cursor'> {
  if (operation === undefined)
    throw new WaybillError(
      'CORRUPT',
      `consumer ${consumer}: a rebuild is under way, but its operation is gone. Abandon it and begin again.`,
    )
  const started = argumentsOf(operation).from
  if (from !== undefined && from !== started)
    throw new WaybillError(
      'REFUSED',
      `consumer ${consumer}: a rebuild from ${started} is under way. Go on with that one, or abandon it first.`,
    )
  const cursor = operation.cursor === null ? undefined : (JSON.parse(operation.cursor) as StartedRebuild['cursor'])
  return { operationId: operation.id, from: started, cursor }
}

function argumentsOf(operation: OperationRow): { readonly from: string; readonly generation: number } {
  return JSON.parse(operation.arguments) as { readonly from: string; readonly generation: number }
}

/** Removes what the new generation needed. It is swapped in whatever becomes of this, so what fails is only told. */
async function cleanUp(started: StartedRebuild, options: RebuildOptions): Promise<string | undefined> {
  const { from, scope } = started
  try {
    await removeLeftovers(started)
    if (from !== 'outbox') await unsubscribe({ ...options, generations: [scope.next] })
    return undefined
  } catch (error) {
    return `The memory or the subscription of generation ${scope.next} could not be removed (${errorMessage(error)}).`
  }
}

/** A subscription that nobody reads would keep messages for ever. */
async function unsubscribe({
  consumer,
  transport,
  generations,
}: Pick<RebuildOptions, 'consumer' | 'transport'> & { readonly generations: readonly number[] }): Promise<void> {
  const { name } = consumer.settings
  const broker: Partial<Transport> = transport ?? consumer.settings.transport
  for (const generation of generations)
    for (const topic of topicsOf(shadowsOf(consumer.routes(), generation)))
      await broker.unsubscribe?.(topic, subscriptionOf(name, generation))
}

function operationOf(operations: readonly OperationRow[], generation: number): OperationRow | undefined {
  return operations.find((each) => argumentsOf(each).generation === generation)
}

/** What the new generation remembered is of no use once its tables are live: the live generation's memory goes on. */
async function removeLeftovers({
  db,
  scope,
}: {
  readonly db: Database
  readonly scope: Pick<StartedRebuild['scope'], 'tables' | 'consumer'>
}): Promise<void> {
  const { tables, consumer } = scope
  for (const table of [tables.position, tables.attempt, tables.message, tables.deadLetter, tables.inbox])
    while ((await execute(db, deleteLeftovers(table, tables.consumer, consumer))) === leftoverBatch);
}

/** Rows that the live generation got a moment ago may be missing or older; they are there before the swap. */
function differs({ missing, older, different }: Comparison, onTheirWay: number): boolean {
  return different > 0 || missing + older > onTheirWay
}
