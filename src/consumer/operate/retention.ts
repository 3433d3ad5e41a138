/**
 * Removes inbox rows, attempts, settled dead letters and archived messages when their time is over, in batches; a full batch goes on at once.
 *
 * Letters are found by their index. The other tables are walked over in short stretches, as many a pass as it takes to come
 * round in some hours, so that writers pay for no index of age. (A BRIN index cannot say where old rows are once space is used
 * again: what it knows of a range only widens, and in the end it names the whole table.)
 *
 * The inbox must remember for longer than anything can come again: the broker's retention, its dead letters, a replay. That
 * is checked at the start, and how far back it remembers is written down with every removal, so that a redrive or a replay
 * from before can be refused. A dead letter that nobody settled is never removed. Any number of instances share the work. A step of
 * the database's clock makes nothing old (see witnessed-clock.ts).
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { loop, type Pass } from '../../core/service/loop.ts'
import { oneOf, resolve, wholeBetween } from '../../core/options.ts'
import { systemRandom } from '../../core/service/random.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import { one, type Queryable } from '../../postgres/query/database.ts'
import { removalMs, withDeadlines } from '../../postgres/transaction/deadline.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import { createWitness, type AgeByClock } from '../../postgres/clock/witnessed-clock.ts'
import {
  expireArchive,
  expireAttempts,
  expireDeadLetters,
  expireInbox,
  type ExpiredStretch,
  type Stretch,
} from '../tables/retention.sql.ts'
import { inboxTables } from '../tables/inbox.sql.ts'

export interface InboxRetentionOptions {
  readonly db: Queryable
  /** @default 'waybill' */
  readonly schema?: string
  /** How long the inbox remembers an event. @default 35 days */
  readonly inboxMs?: number
  /** How long failures of an event that was never applied are kept. @default 35 days */
  readonly attemptsMs?: number
  /** How long redriven and discarded letters are kept from then on. @default 90 days */
  readonly deadLettersMs?: number
  /** How long applied messages are kept by consumers with `archive: true`. @default 7 days */
  readonly archiveMs?: number
  /** How long the broker keeps messages, its dead letters included. The broker is not asked: Kafka may keep them for longer. @default 31 days */
  readonly brokerMs?: number
  /** What to do at the start if the inbox forgets before the broker does. @default 'refuse' */
  readonly onShortMemory?: 'refuse' | 'warn'
  /** Rows in one transaction. @default 50_000 */
  readonly batchSize?: number
  /** The wait after a pass that found little. @default 5_000 */
  readonly idleMs?: number
  readonly signals?: SignalBus
  readonly clock?: Clock
}

export interface InboxRetention extends Service {
  /** Removes what is old in the next stretches of each table; `more` if there may be more beside it. */
  readonly pass: Pass
}

/** 4 MB: thousands of old rows if there are any, a moment's work if there are none. */
const blocksOfAStretch = 512
/** A table is gone over in this time, where little is old. */
const roundMs = 21_600_000
/** Where this many of a stretch are old there are more. */
const manyRows = 1_000

export function createInboxRetention(options: InboxRetentionOptions): InboxRetention {
  const resolved = resolveOptions(options)
  const settings = { ...resolved, db: withDeadlines(resolved.db, { statementMs: removalMs, clock: resolved.clock }) }
  const { db, schema, batchSize, idleMs, signals, clock } = settings
  const name = `inbox retention ${schema}`
  const tables = inboxTables(schema)
  const look = createWitness({ db, schema, clock, signals })
  let aged: AgeByClock = (ageMs) => ageMs
  const walks = {
    inbox: createWalk(settings, (stretch) => expireInbox(tables, { ageMs: aged(settings.inboxMs), batchSize, stretch })),
    attempts: createWalk(settings, (stretch) => expireAttempts(tables, { ageMs: aged(settings.attemptsMs), batchSize, stretch })),
    archive: createWalk(settings, (stretch) => expireArchive(tables, { ageMs: aged(settings.archiveMs), batchSize, stretch })),
  }
  const pass: Pass = async (aborting) => {
    aged = await look()
    const inbox = await walks.inbox(aborting)
    const attempts = await walks.attempts(aborting)
    const deadLetters = (await one(db, expireDeadLetters(tables, { ageMs: aged(settings.deadLettersMs), batchSize }))).removed
    const archive = await walks.archive(aborting)
    const removed = { inbox: inbox.removed, attempts: attempts.removed, deadLetters, archive: archive.removed }
    if (Object.values(removed).some((count) => count > 0)) signals.emit('inbox.retained', removed)
    const most = Math.max(inbox.most, attempts.most, deadLetters, archive.most)
    return most >= Math.min(batchSize, manyRows) ? 'more' : 'idle'
  }
  return {
    name,
    pass,
    run: async (life) => {
      checkMemory(settings)
      await loop(pass, life, {
        idleMs: () => idleMs,
        onError: (error, failures, delayMs) => signals.emit('service.failed', { service: name, error, failures, delayMs }),
        clock,
      })
    },
  }
}

interface Walked {
  readonly removed: number
  /** In one stretch. */
  readonly most: number
}

/**
 * One call, some stretches of a table, and at its end from the beginning. After the first it goes on anywhere: walks of
 * processes that do not live long come everywhere in the end.
 */
function createWalk(
  { db, batchSize, idleMs }: Pick<Required<InboxRetentionOptions>, 'db' | 'batchSize' | 'idleMs'>,
  expire: (stretch: Stretch) => Statement<ExpiredStretch>,
): (aborting: AbortSignal) => Promise<Walked> {
  let from = 0
  let isFirst = true
  return async (aborting) => {
    let [removed, most] = [0, 0]
    for (let walked = 1; ; walked += 1) {
      const found = await one(db, expire({ from, to: from + blocksOfAStretch }))
      removed += found.removed
      most = Math.max(most, found.removed)
      if (found.removed >= batchSize) return { removed, most }
      const stretches = Math.ceil(found.blocks / blocksOfAStretch)
      from = isFirst ? Math.floor(systemRandom.next() * stretches) * blocksOfAStretch : from + blocksOfAStretch
      if (from >= found.blocks) from = 0
      isFirst = false
      if (walked >= (stretches * idleMs) / roundMs || aborting.aborted) return { removed, most }
    }
  }
}

function checkMemory({ inboxMs, brokerMs, onShortMemory, schema, signals }: Required<InboxRetentionOptions>): void {
  if (inboxMs >= brokerMs) return
  if (onShortMemory === 'warn') return signals.emit('inbox.memory-short', { inboxMs, brokerMs })
  throw new WaybillError(
    'REFUSED',
    `The inbox of schema ${schema} forgets after ${days(inboxMs)} days, but the broker can deliver a message again for ${days(brokerMs)} days: such a message would be applied twice. Raise inboxMs, or set brokerMs to what the broker really keeps.`,
  )
}

function days(ms: number): number {
  return Math.round(ms / 8_640_000) / 10
}

function resolveOptions(given: InboxRetentionOptions): Required<InboxRetentionOptions> {
  const age = wholeBetween(0, 10 * 365 * 86_400_000)
  return resolve<Required<InboxRetentionOptions>>(
    'inbox retention',
    { db: given.db, schema: defaults.schema, ...defaults.inboxRetention, signals: defaultSignals, clock: systemClock },
    given,
    {
      inboxMs: age,
      attemptsMs: age,
      deadLettersMs: age,
      archiveMs: age,
      brokerMs: age,
      onShortMemory: oneOf('refuse', 'warn'),
      batchSize: wholeBetween(1, 500_000),
      idleMs: wholeBetween(1, 3_600_000),
    },
  )
}
