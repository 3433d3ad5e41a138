/**
 * Stops a consumer, or one aggregate of it, and lets it go on again. Both are audited.
 *
 * A paused consumer takes no deliveries in any of its processes; the broker keeps them. The events of a paused aggregate are
 * stored as they come, and applied in order once it goes on. Processes hear of it within `pollMs`; what is under way then is
 * finished.
 *
 * A pause of an aggregate is above its dead letters: one that is redriven meanwhile waits, and settling one does not end the
 * pause. At its end the aggregate is held by the first of them that nobody has settled, as if it had never been paused.
 */
import { WaybillError } from '../../core/errors.ts'
import { execute, first, one, type Database, type Tx } from '../../postgres/query/database.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { inboxTables, readConsumer, type Scope } from '../tables/inbox.sql.ts'
import { lockPaused, pauseAggregate, resumeAggregate, setPaused } from '../tables/operate.sql.ts'

export interface ConsumerPauseAction {
  readonly db: Database
  readonly schema: string
  readonly consumer: string
  /** One aggregate. @default the whole consumer */
  readonly aggregate?: { readonly type: string; readonly id: string } | undefined
  /** Who does it, for the audit log. */
  readonly actor: string
  readonly reason?: string | undefined
}

/** Returns `false` if it was paused already. */
export async function pauseConsumer(action: ConsumerPauseAction): Promise<boolean> {
  return await change(action, 'consumer.pause', async (tx, scope) => {
    const { aggregate, actor } = action
    if (aggregate === undefined) return (await execute(tx, setPaused(scope, { paused: true, actor }))) > 0
    return (await execute(tx, pauseAggregate(scope, aggregate))) > 0
  })
}

/** Returns `false` if it was not paused. An aggregate that a dead letter holds goes on when that is settled. */
export async function resumeConsumer(action: ConsumerPauseAction): Promise<boolean> {
  return await change(action, 'consumer.resume', async (tx, scope) => {
    const { aggregate, actor } = action
    if (aggregate === undefined) return (await execute(tx, setPaused(scope, { paused: false, actor }))) > 0
    if ((await first(tx, lockPaused(scope, aggregate))) === undefined) return false
    return (await execute(tx, resumeAggregate(scope, aggregate))) > 0
  })
}

async function change(
  action: ConsumerPauseAction,
  name: string,
  act: (tx: Tx, scope: Scope) => Promise<boolean>,
): Promise<boolean> {
  const { db, schema, consumer, aggregate, actor, reason = '' } = action
  const tables = inboxTables(schema)
  return await transaction(db, async (tx) => {
    const found = await first(tx, readConsumer({ tables, consumer }))
    if (found === undefined)
      throw new WaybillError('NOT_FOUND', `There is no consumer ${consumer} in schema ${schema}: it has never run here.`)
    if (!(await act(tx, { tables, consumer, generation: found.generation }))) return false
    await one(tx, insertAudit(schema, { actor, action: name, details: { consumer, aggregate, reason } }))
    return true
  })
}
