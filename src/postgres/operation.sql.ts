/**
 * Every statement on the table of operations: a row for each backfill, rebuild and redrive, with its arguments and how far it is.
 *
 *   start ──▶ running ──▶ finished, cancelled
 *               │  ▲
 *               ▼  │ take
 *              failed
 *
 * An operation is saved in the transaction of its work, so what is saved and what was done are one. Whatever has ended is left as it is.
 */
import { name, sql, type Name, type Statement } from './query/sql.ts'

export type OperationKind = 'backfill' | 'rebuild' | 'dlq.redrive'

export interface OperationRow {
  readonly id: string
  readonly state: 'running' | 'finished' | 'failed' | 'cancelled'
  /** JSON, as are the others. */
  readonly arguments: string
  readonly cursor: string | null
  readonly progress: string
}

export function operationTable(schema: string): Name {
  return name(schema, 'operation')
}

/**
 * Only one process at a time may decide whether an operation begins, goes on or is refused. The mode conflicts with itself and with no
 * row lock, so operations that run go on; it needs a right to change the table, so a stranger cannot hold it.
 */
export function lockOperations(schema: string): Statement {
  return sql`lock table ${operationTable(schema)} in share update exclusive mode`
}

export function startOperation(
  schema: string,
  kind: OperationKind,
  { id, arguments: given, progress = {} }: { readonly id: string; readonly arguments: object; readonly progress?: object },
): Statement {
  return sql`
    insert into ${operationTable(schema)} (id, kind, arguments, progress)
    values (${id}::text::uuid, ${kind}::text, ${JSON.stringify(given)}::text::jsonb, ${JSON.stringify(progress)}::text::jsonb)`
}

/** The operations of a kind that have this argument, newest first. The table has a row for each one ever started: it stays small. */
export function findOperations(
  schema: string,
  kind: OperationKind,
  [key, value]: readonly [key: string, value: string],
): Statement<OperationRow> {
  return sql`
    select id::text, state, arguments::text, cursor::text, progress::text
      from ${operationTable(schema)}
     where kind = ${kind}::text and arguments->>${key}::text = ${value}::text
     order by started_at desc, id desc`
}

/**
 * Makes this process the one that works: the one that did before finds out at its next batch. A batch that is being committed is
 * waited for, and what is returned is how far that went. No row means that it is finished or given up.
 */
export function takeOperation(schema: string, id: string, runner: string): Statement<OperationRow> {
  return sql`
    update ${operationTable(schema)}
       set state = 'running', error = null, finished_at = null, updated_at = clock_timestamp(),
           progress = progress || jsonb_build_object('runner', ${runner}::text)
     where id = ${id}::text::uuid and state in ('running', 'failed')
    returning id::text, state, arguments::text, cursor::text, progress::text`
}

/** Locks an operation of this kind: what resumes one that is under way waits for its batch, and goes on behind it. */
export function lockOperation(schema: string, kind: OperationKind, id: string): Statement<OperationRow> {
  return sql`
    select id::text, state, arguments::text, cursor::text, progress::text from ${operationTable(schema)}
     where id = ${id}::text::uuid and kind = ${kind}::text for update`
}

/** What is not given stays. A state other than `running` ends the operation. */
export interface SavedOperation {
  readonly progress?: object
  readonly cursor?: unknown
  readonly state?: OperationRow['state'] | undefined
  readonly error?: string
}

/** Saves how far an operation is. Touches no row if it has ended, or is another runner's than the given one. */
export function saveOperation(
  schema: string,
  { id, runner = null }: { readonly id: string; readonly runner?: string | null },
  { progress, cursor, state, error }: SavedOperation,
): Statement {
  const end = state ?? null
  return sql`
    update ${operationTable(schema)}
       set progress = coalesce(${json(progress)}::text::jsonb, progress), cursor = coalesce(${json(cursor)}::text::jsonb, cursor),
           state = coalesce(${end}::text, state), error = coalesce(${error ?? null}::text, error), updated_at = clock_timestamp(),
           finished_at = case when ${end}::text is null then finished_at else clock_timestamp() end
     where id = ${id}::text::uuid and state in ('running', 'failed')
       and (${runner}::text is null or progress->>'runner' = ${runner}::text)`
}

/** Takes a word out of the progress of an operation, which may have ended. */
export function forgetProgress(schema: string, id: string, key: string): Statement {
  return sql`
    update ${operationTable(schema)} set progress = progress - ${key}::text, updated_at = clock_timestamp() where id = ${id}::text::uuid`
}

function json(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value)
}
