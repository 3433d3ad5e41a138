/**
 * Lets the broker deliver a consumer's messages again, as far back as its inbox remembers and no further.
 *
 * Beyond that the inbox would take old events for new ones, and their effects would happen twice. Whoever wants everything
 * again wants a rebuild, which starts with an inbox of its own.
 *
 * Nothing is skipped: what is older than the target and not settled, because the consumer is paused, is behind or has stopped at
 * an event, still comes. A broker that cannot tell what is settled is asked only to deliver everything again, or by choice.
 */
import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import { first, one, type Queryable } from '../../postgres/query/database.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import type { SeekTarget, Transport } from '../../transport/port/transport.ts'
import { inboxTables } from '../tables/inbox.sql.ts'
import { selectKeepsOffsets, selectMemory, selectMoment } from '../tables/retention.sql.ts'

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
  const move = await allowedMove(options)
  const details = { consumer, topics, to, beyondMemory, skipOlder }
  if (actor !== undefined) await one(db, insertAudit(schema, { actor, action: 'consumer.replay', details }))
  for (const topic of topics) await move(topic)
}

/** Refuses what `replayConsumer` would refuse, and moves nothing. */
export async function assertReplay(options: ReplayOptions): Promise<void> {
  await allowedMove(options)
}

async function allowedMove(options: ReplayOptions): Promise<(topic: string) => Promise<void>> {
  const nowMs = await assertPast(options)
  await assertBrokersOffsets(options)
  return moverOf(options, options.beyondMemory === true ? fromEarliest : await assertMemory(options, nowMs))
}

/** A moment that has not come is a mistake, and a seek there would settle everything that waits. Resolves to the present. */
async function assertPast({ db, to }: ReplayOptions): Promise<number> {
  const nowMs = Number((await one(db, selectMoment())).at_ms)
  if (to === 'earliest' || to.sinceMs <= nowMs) return nowMs
  throw new WaybillError(
    'REFUSED',
    `A replay from ${new Date(to.sinceMs).toISOString()} begins in the future: by the clock of the database it is ${new Date(nowMs).toISOString()}. Replay from a moment that is over.`,
    { details: { sinceMs: to.sinceMs, nowMs } },
  )
}

/** Whoever keeps offsets begins at them, wherever the broker's are. */
async function assertBrokersOffsets({ db, schema, consumer }: ReplayOptions): Promise<void> {
  if ((await first(db, selectKeepsOffsets(inboxTables(schema), consumer)))?.keeps !== true) return
  throw new WaybillError(
    'REFUSED',
    `Consumer ${consumer} keeps its offsets in Postgres, and what is below them is done. Rebuild it, or read the log with a consumer of another name. If it keeps them no longer, delete its rows of ${schema}.consumer_offset.`,
    { details: { consumer } },
  )
}

const fromEarliest = 'Replay from earliest, which drops nothing'

/** `most` names the longest replay that is allowed. */
function moverOf({ transport, consumer, to, skipOlder = false }: ReplayOptions, most: string): (topic: string) => Promise<void> {
  // Nothing is older than the earliest message, so nothing is skipped.
  if (to === 'earliest' || skipOlder) return (topic) => transport.seek({ topic, consumer, to })
  const rewind = transport.rewind?.bind(transport)
  if (rewind !== undefined) return (topic) => rewind({ topic, consumer, sinceMs: to.sinceMs })
  throw new WaybillError(
    'REFUSED',
    `This broker cannot tell what consumer ${consumer} has not settled: moved to ${new Date(to.sinceMs).toISOString()}, it would drop whatever is older and still waits. ${most}. Or resume the consumer, let its backlog come to zero, and replay with skipOlder (--skip-older).`,
    { details: { consumer } },
  )
}

/** Resolves to the longest replay that it allows. */
async function assertMemory({ db, schema, transport, consumer, to }: ReplayOptions, nowMs: number): Promise<string> {
  const row = await first(db, selectMemory(inboxTables(schema), consumer))
  if (row === undefined)
    throw new WaybillError('NOT_FOUND', `There is no consumer ${consumer} in schema ${schema}: it has never run here.`)
  if (row.forgotten_before_ms === null) return fromEarliest
  const forgottenBeforeMs = Number(row.forgotten_before_ms)
  const remembered = new Date(Math.min(forgottenBeforeMs + readingMs, nowMs)).toISOString()
  const dropping = ' with skipOlder (--skip-older), which drops nothing if the broker retains nothing older'
  const most = `Replay from ${remembered}${transport.rewind === undefined ? dropping : ''}`
  if (to !== 'earliest' && to.sinceMs >= forgottenBeforeMs) return most
  const since = to === 'earliest' ? 'the earliest message' : new Date(to.sinceMs).toISOString()
  throw new WaybillError(
    'REFUSED',
    `A replay from ${since} reaches beyond the memory of the inbox: consumer ${consumer} has forgotten what it processed before ${new Date(forgottenBeforeMs).toISOString()}, and would apply it again. ${most}. Or rebuild the consumer, or insist if versioned upserts are its only effect.`,
    { details: { consumer, forgottenBeforeMs } },
  )
}

/** While an operator reads what to do, the inbox goes on forgetting. */
const readingMs = 3_600_000
