/**
 * The owner's side of the chaos tests: streams, histories, the user's tables, and the verdict on what a consumer made of them.
 */
import { z } from 'zod'
import { delta, state, tombstone } from '../../src/core/event/event.ts'
import { newId } from '../../src/core/event/id.ts'
import { stream } from '../../src/core/event/stream.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { checkHistory } from '../../src/testing/history/checker.ts'
import { aggregateName } from '../../src/testing/history/entry.ts'
import { createHistory, type Recorder } from '../../src/testing/history/history.ts'

const change = z.object({ amount: z.number() })

/** Whole states and tombstones; only deltas; deltas with states that stand for them. */
export const notes = stream('note', { topic: 'note.events', events: { Noted: state(change), Erased: tombstone() } })
export const wallets = stream('wallet', { topic: 'note.events', events: { Moved: delta(change) } })
export const meters = stream('meter', { topic: 'note.events', events: { Turned: delta(change), Reset: state(change) } })
export const streams = { note: notes, wallet: wallets, meter: meters }

export interface Fact {
  readonly id: string
  readonly aggregateType: keyof typeof streams
  readonly aggregateId: string
  readonly version: number
  readonly type: string
  readonly amount: number
}

/** Events of one aggregate, by the numbers that choose their types and amounts. */
export interface History {
  readonly aggregateType: keyof typeof streams
  readonly choices: readonly number[]
}

export interface Setting {
  readonly db: Database
  readonly schema: string
}

/** The user's tables. The order of amounts matters to `total`, so that deltas out of turn show. */
export async function createChaosTables({ db, schema }: Setting): Promise<void> {
  await db.query(
    `create table ${schema}.note_view (consumer_note text primary key, amount bigint, version bigint not null, deleted_at timestamptz)`,
  )
  await db.query(
    `create table ${schema}.total (consumer text, aggregate_type text, aggregate_id text, total bigint not null, primary key (consumer, aggregate_id))`,
  )
  await db.query(
    `create table ${schema}.effect (at bigint generated always as identity, consumer text, event_id uuid, aggregate_type text, aggregate_id text, version bigint)`,
  )
  await db.query(
    `create table ${schema}.watched (at bigint generated always as identity, consumer_note text, version bigint not null)`,
  )
  await db.query(
    `create function ${schema}.watch_version() returns trigger language plpgsql as $$ begin
       insert into ${schema}.watched (consumer_note, version) values (new.consumer_note, new.version); return new; end $$;
     create trigger watch_version after insert or update on ${schema}.note_view for each row execute function ${schema}.watch_version()`,
  )
}

export function factsOf({ aggregateType, choices }: History, aggregateId: string): Fact[] {
  return choices.map((choice, i) => {
    const rare = choice % 5 === 0
    const type = { note: rare ? 'Erased' : 'Noted', wallet: 'Moved', meter: rare ? 'Reset' : 'Turned' }[aggregateType]
    return { id: newId(), aggregateType, aggregateId, version: i + 1, type, amount: choice }
  })
}

/** What the owner has at the end: `undefined` for a note that is gone. */
function fold(facts: readonly Fact[]): number | undefined {
  let total: number | undefined = 0
  for (const { type, amount } of facts) {
    if (type === 'Erased') total = undefined
    else if (type === 'Noted' || type === 'Reset') total = amount
    else total = step(total ?? 0, amount)
  }
  return total
}

export function step(total: number, amount: number): number {
  return (total * 3 + amount) % 1_000_003
}

/** What is wrong: the owner's history and what the consumer's database tells, held against each other. */
export async function judge(setting: Setting, consumer: string, facts: readonly Fact[]): Promise<string[]> {
  const history = createHistory()
  history.record({ op: 'follow', consumer, types: Object.keys(streams) })
  for (const fact of facts) {
    const event = { event: fact.id, aggregate: aggregateOf(fact), version: fact.version }
    history.record({ op: 'commit', ...event })
    history.record({ op: 'log', isUnordered: true, ...event })
    if (leavesNoEffect(fact, facts))
      history.record({ op: 'excuse', consumer, event: fact.id, why: 'a later state may stand for it' })
  }
  for (const own of Map.groupBy(facts, aggregateOf).values())
    history.record({ op: 'state', aggregate: aggregateOf(own[0] as Fact), value: fold(own)?.toString() ?? null })
  await recordConsumer(history, setting, consumer)
  return checkHistory(history.entries).violations.map(({ text }) => text)
}

async function recordConsumer(history: Recorder, { db, schema }: Setting, consumer: string): Promise<void> {
  const ask = async <Row>(text: string): Promise<readonly Row[]> =>
    (await db.query(text.replaceAll('$schema', schema), [consumer])).rows as readonly Row[]
  const effects = await ask<{ event: string; type: string; aggregate: string; version: number }>(
    `select event_id::text as event, aggregate_type as type, aggregate_type || ' ' || aggregate_id as aggregate, version::int
       from $schema.effect where consumer = $1 order by at`,
  )
  // The handler of notes may be called for an older state after a newer one; deltas come in turn.
  for (const { type, version, ...effect } of effects)
    history.record({ op: 'apply', consumer, version, ...effect, ...(type === 'note' ? {} : { after: version }) })
  const watched = await ask<{ aggregate: string; version: number }>(
    `select 'note ' || split_part(consumer_note, ' ', 2) as aggregate, version::int from $schema.watched
      where split_part(consumer_note, ' ', 1) = $1 order by at`,
  )
  for (const each of watched) history.record({ op: 'observe', consumer, ...each })
  const states = await ask<{ aggregate: string; value: string | null }>(
    `select 'note ' || split_part(consumer_note, ' ', 2) as aggregate, case when deleted_at is null then amount::text end as value
       from $schema.note_view where split_part(consumer_note, ' ', 1) = $1
     union all
     select aggregate_type || ' ' || aggregate_id, total::text from $schema.total where consumer = $1`,
  )
  for (const each of states) history.record({ op: 'state', consumer, ...each })
  const [waiting] = await ask<{ count: number }>('select count(*)::int as count from $schema.inbox_message where consumer = $1')
  history.record({ op: 'rest', left: { 'stored messages': waiting?.count ?? 0 } })
}

function aggregateOf({ aggregateType, aggregateId }: Fact): string {
  return aggregateName(aggregateType, aggregateId)
}

/** Nobody handles erasures; and a meter may go on from a state without what came before it. */
function leavesNoEffect({ type, aggregateId, version }: Fact, facts: readonly Fact[]): boolean {
  if (type === 'Erased') return true
  return facts.some((other) => other.aggregateId === aggregateId && other.type === 'Reset' && other.version > version)
}
