/**
 * Lets the broker deliver a consumer's messages again, as far back as its inbox remembers and no further.
 *
 * Beyond that the inbox would take old events for new ones, and their effects would happen twice. Whoever wants everything
 * again wants a rebuild, which starts with an inbox of its own.
 *
 * Nothing is skipped: what is older than the target and not settled, because the consumer is paused, is behind or has stopped at
 * an event, still comes. A broker that cannot tell what is settled is asked only to deliver everything again, or by choice.
 */
import { WaybillError } from '../core/errors.ts'
import { refuseUnknown } from '../core/options.ts'
import { first, one, type Queryable } from '../postgres/database.ts'
import { insertAudit } from '../postgres/migrate.sql.ts'
import type { SeekTarget, Transport } from '../transport/transport.ts'
import { inboxTables } from './inbox.sql.ts'
import { selectMemory, selectMoment } from './inbox-retention.sql.ts'

export interface ReplayOptions {
  readonly db: Queryable
  readonly schema: string
  readonly transport: Pick<Transport, 'seek' | 'rewind'>
  readonly consumer: string
  readonly topics: readonly string[]
  /** A moment lies in the past, by the clock of the database. */
  readonly to: SeekTarget
  /** Also beyond what the inbox remembers. Safe if versioned upserts are the only effect. @default false */
  readonly beyondMemory?: boolean | undefined
  /** What is older and not settled never comes. For brokers that cannot tell what that is, once nothing is. @default false */
  readonly skipOlder?: boolean | undefined
  /** Who does it, for the audit log, which the owner of the schema writes. @default nobody, and nothing is written */
  readonly actor?: string | undefined
}

const optionNames = ['db', 'schema', 'transport', 'consumer', 'topics', 'to', 'beyondMemory', 'skipOlder', 'actor']

/** Moves the consumer's subscriptions back, or refuses and says why. */
export async function replayConsumer(options: ReplayOptions): Promise<void> {
  refuseUnknown('replayConsumer', options, optionNames)
  const { db, schema, consumer, topics, to, beyondMemory = false, skipOlder = false, actor } = options
  await assertPast(options)
  if (!beyondMemory) await assertMemory(options)
  const move = moverOf(options)
  const details = { consumer, topics, to, beyondMemory, skipOlder }
  if (actor !== undefined) await one(db, insertAudit(schema, { actor, action: 'consumer.replay', details }))
  for (const topic of topics) await move(topic)
}

/** A moment that has not come is a mistake, and a seek there would settle everything that waits. */
async function assertPast({ db, to }: ReplayOptions): Promise<void> {
  if (to === 'earliest') return
  const nowMs = Number((await one(db, selectMoment())).at_ms)
  if (to.sinceMs <= nowMs) return
  throw new WaybillError(
    'REFUSED',
    `A replay from ${new Date(to.sinceMs).toISOString()} begins in the future: by the clock of the database it is ${new Date(nowMs).toISOString()}. Replay from a moment that is over.`,
    { details: { sinceMs: to.sinceMs, nowMs } },
  )
}

function moverOf({ transport, consumer, to, skipOlder = false }: ReplayOptions): (topic: string) => Promise<void> {
  // Nothing is older than the earliest message, so nothing is skipped.
  if (to === 'earliest' || skipOlder) return (topic) => transport.seek({ topic, consumer, to })
  const rewind = transport.rewind?.bind(transport)
  if (rewind !== undefined) return (topic) => rewind({ topic, consumer, sinceMs: to.sinceMs })
  throw new WaybillError(
    'REFUSED',
    `This broker cannot tell what consumer ${consumer} has not settled: moved to ${new Date(to.sinceMs).toISOString()}, it would drop whatever is older and still waits. Replay from earliest, which drops nothing. Or resume the consumer, let its backlog come to zero, and replay with skipOlder (--skip-older).`,
    { details: { consumer } },
  )
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
