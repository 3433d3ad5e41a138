/**
 * Snapshot backfill: emits the state of rows that were there before their events, or that a consumer lost.
 *
 * A snapshot is an event like any other: it takes the next version of its aggregate, under the aggregate's lock, and goes
 * through the outbox. So a consumer that missed something is repaired, one that is up to date applies the state it has, and
 * live writes race it harmlessly. Each batch commits its events together with how far it got: killed at any moment and
 * resumed, it neither leaves out a row nor emits one twice.
 *
 * Live traffic comes first: rows per second are limited, the backfill waits while the relay has more to send than a limit,
 * and it gives way to writers that hold an aggregate. If the broker refuses its snapshots, it stops.
 */
import { backoffMs } from '../../core/service/backoff.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { errorMessage, isWaybillError, WaybillError } from '../../core/errors.ts'
import { resolve, wholeBetween } from '../../core/options.ts'
import { systemRandom } from '../../core/service/random.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import { execute, type Database, type Tx } from '../../postgres/query/database.ts'
import { assertSchema } from '../../postgres/schema/deployment.ts'
import { isLockTimeout } from '../../postgres/query/sql-state.ts'
import { storableError } from '../../postgres/query/storable.ts'
import { runBatch } from './batch.ts'
import { createBackfillGate } from './backpressure.ts'
import { openOperation, type BackfillMode, type BackfillOperation } from './operation.ts'
import { createBackfillPace, type BackfillPace } from './pace.ts'
import type { BackfillPage, BackfillSource } from './sources.ts'
import { saveOperation } from '../../postgres/operation.sql.ts'
import type { NewEvent, Outbox } from '../outbox.ts'

export interface BackfillOptions<Row> {
  /** Connected as the owner of the schema: a backfill is an operator's work. */
  readonly db: Database
  readonly outbox: Outbox
  /** Names the backfill: one operation of a name is under way at a time, and is resumed by it. */
  readonly name: string
  /** Where the rows come from: `backfillTable(…)` or `backfillFile(…)`. */
  readonly source: BackfillSource<Row>
  /** The stream that the snapshots belong to. */
  readonly stream: AnyStream
  /** The aggregate of a row: what is locked before the row is read for good. Text that `outbox.add` takes, for every row. */
  readonly aggregateId: (row: Row) => string
  /** The row's state as an event, made under the lock; `undefined` emits nothing. What belongs to the state is read by `tx`. */
  readonly toEvent: (row: Row, tx: Tx) => NewEvent | undefined | Promise<NewEvent | undefined>
  /** @default 500 */
  readonly rowsPerSecond?: number
  /** Rows in one transaction, whose aggregates writers wait for meanwhile. @default 100 */
  readonly batchSize?: number
  /** While more events than this are due at the relay, or failed and wait for their retry, the backfill waits. Of other streams only what is due counts. @default 5_000 */
  readonly maxBacklog?: number
  /** How long a batch waits for an aggregate that a writer holds, before it gives way. @default 200 */
  readonly lockTimeoutMs?: number
  /** The service that must own the schema. @default whichever the schema is bound to */
  readonly service?: string | undefined
  /** The deployment that the schema must be stamped with: a copy of the whole disk is refused by nothing else. @default whichever it is stamped with */
  readonly deploymentId?: string | undefined
  /** Who runs it, kept with the operation. @default '' */
  readonly actor?: string
  readonly signals?: SignalBus
  readonly clock?: Clock
}

export interface BackfillReport {
  readonly operation: string
  /** `stopped` by the signal: to be resumed. */
  readonly state: 'finished' | 'stopped'
  readonly rows: number
  readonly emitted: number
  /** Rows that were gone, or that `toEvent` or the source's policy left out. */
  readonly skipped: number
}

export interface Backfill {
  readonly name: string
  /** Works until the end of the source, or until `signal` aborts; then the batch in hand is finished first. */
  run(options?: { readonly mode?: BackfillMode; readonly signal?: AbortSignal }): Promise<BackfillReport>
}

type Settings<Row> = Required<BackfillOptions<Row>>

const giveWay = { firstMs: 50, maxMs: 2_000 }

export function createBackfill<Row>(options: BackfillOptions<Row>): Backfill {
  const settings = resolveOptions(options)
  const { db, outbox, name, source, service, deploymentId, actor } = settings
  const { schema } = outbox.tables
  return {
    name,
    run: async ({ mode = 'new', signal = new AbortController().signal } = {}) => {
      await assertSchema(db, { schema, service, deploymentId })
      const measure = (): Promise<number | undefined> => source.measure(db)
      const opened = await openOperation(db, { schema, name, source: source.description, actor, mode, measure })
      if (opened.isFinished) return report(opened, 'finished')
      try {
        const { operation, isComplete } = await walk(settings, opened, signal)
        if (!isComplete) return report(operation, 'stopped')
        await execute(db, saveOperation(schema, operation, { state: 'finished' }))
        const finished = report(operation, 'finished')
        settings.signals.emit('backfill.finished', { backfill: name, ...finished })
        return finished
      } catch (error) {
        const failed = saveOperation(schema, opened, { state: 'failed', error: storableError(errorMessage(error)) })
        // The error itself is what the caller has to know; without this mark the operation counts as running.
        await execute(db, failed).catch(() => {})
        throw error
      }
    },
  }
}

interface Walked {
  readonly operation: BackfillOperation
  readonly isComplete: boolean
}

/** Page after page. A batch that met a lock or a row that cannot be emitted is tried again with half as many rows. */
async function walk<Row>(settings: Settings<Row>, opened: BackfillOperation, signal: AbortSignal): Promise<Walked> {
  const { db, source, name, signals, clock } = settings
  const pace = createBackfillPace(clock, settings)
  const relayHasRoom = createBackfillGate(settings, opened.id)
  let operation = opened
  let limit = pace.mostRows
  let failures = 0
  while (!signal.aborted) {
    if (!(await relayHasRoom(operation.emitted, signal))) continue
    const page = await source.page(db, { cursor: operation.cursor, limit })
    if (page === undefined) return { operation, isComplete: true }
    try {
      operation = { ...operation, ...(await runBatch(settings, operation, page)), cursor: page.cursor }
    } catch (error) {
      const isLocked = isWaybillError(error, 'TIMEOUT') || isLockTimeout(error)
      if (!isLocked && (page.rows.length <= 1 || !isRefusal(error))) throw explain(settings, page, error)
      limit = Math.max(1, Math.floor(limit / 2))
      if (isLocked) {
        failures += 1
        signals.emit('backfill.waiting', { backfill: name, operation: operation.id, reason: 'lock' })
        await clock.sleep(backoffMs(giveWay, failures, systemRandom), signal)
      }
      continue
    }
    failures = 0
    limit = Math.min(pace.mostRows, limit * 2)
    tell(settings, { operation, opened, pace })
    await pace.spend(page.rows.length, signal)
  }
  return { operation, isComplete: false }
}

function tell<Row>(
  { name, source, signals }: Settings<Row>,
  {
    operation,
    opened,
    pace,
  }: { readonly operation: BackfillOperation; readonly opened: BackfillOperation; readonly pace: BackfillPace },
): void {
  const { id, rows, emitted, skipped, done, total } = operation
  const left = total === undefined ? undefined : Math.max(0, total - done)
  const speed = pace.progress({ rows: rows - opened.rows, done: done - opened.done, left })
  signals.emit('backfill.progress', {
    backfill: name,
    operation: id,
    rows,
    emitted,
    skipped,
    done,
    total,
    unit: source.unit,
    ...speed,
  })
}

function report({ id, rows, emitted, skipped }: BackfillOperation, state: BackfillReport['state']): BackfillReport {
  return { operation: id, state, rows, emitted, skipped }
}

/** The row is refused for what it is: alone, it is named. */
function isRefusal(error: unknown): boolean {
  return isWaybillError(error, 'INVALID_INPUT') || isWaybillError(error, 'TOO_LARGE')
}

function explain<Row>({ name, aggregateId }: Settings<Row>, page: BackfillPage<Row>, cause: unknown): unknown {
  const [row] = page.rows
  if (!isRefusal(cause) || row === undefined) return cause
  return new WaybillError(
    'INVALID_INPUT',
    `backfill ${name}: aggregate ${JSON.stringify(aggregateId(row))} cannot be emitted: ${errorMessage(cause)} Repair the row, or leave it out in the source or in toEvent, and resume.`,
    { cause },
  )
}

function resolveOptions<Row>(given: BackfillOptions<Row>): Settings<Row> {
  const { db, outbox, name, source, stream, aggregateId, toEvent } = given
  const required = { db, outbox, name, source, stream, aggregateId, toEvent }
  const isFunction = (value: unknown): true | string => typeof value === 'function' || 'must be a function'
  return resolve<Settings<Row>>(
    'backfill',
    {
      ...required,
      ...defaults.backfill,
      service: undefined,
      deploymentId: undefined,
      actor: '',
      signals: defaultSignals,
      clock: systemClock,
    },
    given,
    {
      name: (text) => /^[a-z][a-z0-9_-]{0,62}$/.test(text) || 'must be lower-case letters, digits, "-" and "_", at most 63',
      aggregateId: isFunction,
      toEvent: isFunction,
      rowsPerSecond: wholeBetween(1, 1_000_000),
      batchSize: wholeBetween(1, 5_000),
      maxBacklog: wholeBetween(1, 10_000_000),
      lockTimeoutMs: wholeBetween(1, 400),
    },
  )
}
