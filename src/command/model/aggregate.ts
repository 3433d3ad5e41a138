/**
 * The lock that every writer of an aggregate takes before it writes: command or not.
 *
 * It is the aggregate's row in `aggregate_version`, the same that gives out versions. Several are locked in the order of
 * (type, id), the same for everybody, so that no two writers can wait for each other.
 */
import { aggregateIdFault } from '../../core/event/aggregate-id.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import { assertTx, rows, type Tx } from '../../postgres/query/database.ts'
import { commandTables, lockAggregates as lockStatement } from './command.sql.ts'

/** An aggregate by its type (a stream's `aggregateType`) and id. */
export interface Aggregate {
  readonly type: string
  readonly id: string
}

/** An aggregate whose row this transaction holds. Version 0: it has no event yet. */
export interface LockedAggregate extends Aggregate {
  readonly version: bigint
}

export interface LockOptions {
  /** The schema that holds the outbox. @default 'waybill' */
  readonly schema?: string
}

/** Locks one aggregate until the transaction ends. Call it before anything of the aggregate is read or written. */
export async function lockAggregate(tx: Tx, aggregate: Aggregate, options: LockOptions = {}): Promise<LockedAggregate> {
  const [locked] = await lockAggregates(tx, [aggregate], options)
  return locked as LockedAggregate
}

/** Locks several aggregates with one call; the result is in the order given. */
export async function lockAggregates(
  tx: Tx,
  aggregates: readonly Aggregate[],
  options: LockOptions = {},
): Promise<readonly LockedAggregate[]> {
  assertTx(tx, 'lockAggregate')
  refuseUnknown('lockAggregate', options, ['schema'])
  if (aggregates.length === 0) return []
  aggregates.forEach(assertAggregate)
  const { schema = defaults.schema } = options
  const found = await rows(tx, lockStatement(commandTables(schema), aggregates))
  const versions = new Map(found.map((row) => [aggregateKey({ type: row.type, id: row.id }), BigInt(row.version)]))
  return aggregates.map(({ type, id }) => ({ type, id, version: versions.get(aggregateKey({ type, id })) ?? 0n }))
}

/** One text for one aggregate, to look it up by. */
export function aggregateKey({ type, id }: Aggregate): string {
  return `${type}\u001f${id}`
}

/** Throws INVALID_INPUT for what could be no aggregate of the outbox: its lock would be that of another one, or of none. */
export function assertAggregate(aggregate: Aggregate): void {
  for (const part of ['type', 'id'] as const) {
    const fault = aggregateIdFault((aggregate as Aggregate | undefined)?.[part])
    if (fault !== undefined) throw new WaybillError('INVALID_INPUT', `The ${part} of an aggregate ${fault}.`)
  }
}
