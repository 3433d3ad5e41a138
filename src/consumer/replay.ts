/**
 * Lets the broker deliver a consumer's messages again, as far back as its inbox remembers and no further.
 *
 * Beyond that the inbox would take old events for new ones, and their effects would happen twice. Whoever wants everything
 * again wants a rebuild, which starts with an inbox of its own.
 */
import { WaybillError } from '../core/errors.ts'
import { first, one, type Queryable } from '../postgres/database.ts'
import { insertAudit } from '../postgres/migrate.sql.ts'
import type { SeekTarget, Transport } from '../transport/transport.ts'
import { inboxTables } from './inbox.sql.ts'
import { selectMemory } from './inbox-retention.sql.ts'

export interface ReplayOptions {
  readonly db: Queryable
  readonly schema: string
  readonly transport: Pick<Transport, 'seek'>
  readonly consumer: string
  readonly topics: readonly string[]
  readonly to: SeekTarget
  /** Also beyond what the inbox remembers. Safe if versioned upserts are the only effect. @default false */
  readonly beyondMemory?: boolean | undefined
  /** Who does it, for the audit log, which the owner of the schema writes. @default nobody, and nothing is written */
  readonly actor?: string | undefined
}

/** Moves the consumer's subscriptions back, or refuses and says why. */
export async function replayConsumer(options: ReplayOptions): Promise<void> {
  const { db, schema, transport, consumer, topics, to, beyondMemory = false, actor } = options
  if (!beyondMemory) await assertMemory(options)
  const details = { consumer, topics, to, beyondMemory }
  if (actor !== undefined) await one(db, insertAudit(schema, { actor, action: 'consumer.replay', details }))
  for (const topic of topics) await transport.seek({ topic, consumer, to })
}

async function assertMemory({ db, schema, consumer, to }: ReplayOptions): Promise<void> {
  const row = await first(db, selectMemory(inboxTables(schema), consumer))
  if (row === undefined)
    throw new WaybillError('NOT_FOUND', `There is no consumer ${consumer} in schema ${schema}: it has never run here.`)
  if (row.forgotten_before_ms === null) return
  const forgottenBeforeMs = Number(row.forgotten_before_ms)
  if (to !== 'earliest' && to.sinceMs >= forgottenBeforeMs) return
  const since = to === 'earliest' ? 'the earliest message' : new Date(to.sinceMs).toISOString()
  throw new WaybillError(
    'REFUSED',
    `A replay from ${since} reaches beyond the memory of the inbox: consumer ${consumer} has forgotten what it processed before ${new Date(forgottenBeforeMs).toISOString()}, and would apply it again. Replay from then, rebuild the consumer, or insist if versioned upserts are its only effect.`,
    { details: { consumer, forgottenBeforeMs } },
  )
}
