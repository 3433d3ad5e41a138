/**
 * The swap of a rebuild, in one transaction:
 *
 *   writers of the live tables wait ──▶ the new generation catches up ──▶ its engine stops ──▶ names change ──▶ COMMIT
 *
 * It is refused if a row would be lost that may not go. Whatever goes wrong, nothing has changed, and it can be tried again.
 */
import type { Clock } from '../../core/service/clock.ts'
import { systemClock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { execute, one, type Tx } from '../../postgres/query/database.ts'
import { saveOperation } from '../../postgres/operation.sql.ts'
import { limitStatements } from '../../postgres/transaction/tx-scope.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { isLockTimeout } from '../../postgres/query/sql-state.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { refuseLost } from './missing.ts'
import { freshMs, goneMeanwhile, type RunningRebuild, type StartedRebuild } from './run.ts'
import { swapNames } from './shadow.ts'
import { countNewlyDead, countReached, endGeneration, limitLockWaits, lockRegister, type RebuildScope } from './rebuild.sql.ts'
import { analyzeTable, lockWriters } from './tables.sql.ts'

const lookMs = 10
/** Whoever waits to rename a table lets no new reader of it pass. Unlike writers, those are not asked for patience. */
const renameWaitMs = 3_000

export interface SwapOptions {
  readonly running: RunningRebuild
  readonly actor: string
  readonly swapWaitMs: number
  readonly dropUnknown: boolean
}

export interface Swapped {
  /** The names of the replaced tables. */
  readonly replaced: readonly string[]
  /** How many rows the new ones have no more, or older; see `refuseLost`. */
  readonly droppedRows: number
}

export async function swapRebuild(started: StartedRebuild, options: SwapOptions): Promise<Swapped> {
  const { db, scope, shadows, operationId } = started
  const { tables, consumer, next } = scope
  const { running, actor, swapWaitMs, dropUnknown } = options
  const replaced = shadows.map(({ oldTable }) => oldTable)
  const statementTimeoutMs = Math.max(swapWaitMs, defaults.transaction.statementTimeoutMs)
  // Both tables are compared while writers wait: the planner should know what it compares.
  for (const { shadow } of shadows) await execute(db, analyzeTable(shadow.tableText))
  return await transaction(
    db,
    async (tx) => {
      const register = await one(tx, lockRegister(tables, consumer))
      if (register.next_generation !== next) throw goneMeanwhile(consumer)
      // In the order in which batches write them, so that nobody waits crosswise.
      for (const { live } of shadows) await execute(tx, lockWriters(live.tableText))
      const deadlineMs = systemClock.monotonicMs() + swapWaitMs
      const total = await catchUp(tx, scope, { deadlineMs, clock: systemClock })
      await refuseDead(tx, scope)
      const leftMs = (): number => deadlineMs - systemClock.monotonicMs()
      const droppedRows = await refuseLost(tx, started, { dropUnknown, leftMs })
      await execute(tx, limitStatements(statementTimeoutMs))
      await running.stop()
      await execute(tx, limitLockWaits(Math.min(swapWaitMs, renameWaitMs)))
      await swapNames(tx, shadows).catch((error: unknown) => {
        throw isLockTimeout(error) ? stillRead(consumer, error) : error
      })
      await execute(tx, endGeneration(tables, consumer))
      await execute(
        tx,
        saveOperation(tables.schema, { id: operationId }, { state: 'finished', progress: { reached: total, total, replaced } }),
      )
      const details = { consumer, generation: next, replaced, droppedRows }
      await one(tx, insertAudit(tables.schema, { actor, action: 'rebuild.swap', details }))
      return { replaced, droppedRows }
    },
    { retries: 0, lockTimeoutMs: swapWaitMs, statementTimeoutMs },
  )
}

/** The live generation stands still for these tables now, so the new one gets there. */
async function catchUp(
  tx: Tx,
  scope: RebuildScope,
  { deadlineMs, clock }: { readonly deadlineMs: number; readonly clock: Clock },
): Promise<number> {
  for (;;) {
    const { reached, total } = await one(tx, countReached(scope, freshMs))
    if (reached === total) return total
    if (clock.monotonicMs() > deadlineMs) throw tooSlow(scope.consumer, total - reached)
    await clock.sleep(lookMs)
  }
}

async function refuseDead(tx: Tx, scope: RebuildScope): Promise<void> {
  const dead = await one(tx, countNewlyDead(scope))
  if (dead.count > 0) throw newlyDead(scope.consumer, dead)
}

function tooSlow(consumer: string, behind: number): WaybillError {
  return new WaybillError(
    'TIMEOUT',
    `The rebuild of ${consumer} is behind with ${behind} aggregates, and writers cannot be kept waiting for longer. Nothing was swapped; try again when there is less traffic, or with a longer swapWaitMs (--swap-wait).`,
  )
}

function stillRead(consumer: string, cause: unknown): WaybillError {
  return new WaybillError(
    'TIMEOUT',
    `A transaction that has read a table of ${consumer} is still open (a dump, a report?), and new readers would wait behind the swap for its end. Nothing was swapped; try again when it is over.`,
    { cause },
  )
}

function newlyDead(consumer: string, { count, error }: { readonly count: number; readonly error: string | null }): WaybillError {
  return new WaybillError(
    'REFUSED',
    `The rebuild of ${consumer} gave up on ${count} events that the live generation has applied, such as ${error}. Nothing was swapped; abandon it, correct the projection and begin again.`,
  )
}
