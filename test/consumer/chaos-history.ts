/**
 * The owner's side of the chaos tests: streams, histories, the user's tables, and the verdict on what a consumer made of them.
 */
import { z } from 'zod'
import { delta, state, tombstone } from '../../src/core/event.ts'
import { newId } from '../../src/core/id.ts'
import { stream } from '../../src/core/stream.ts'
import type { Database } from '../../src/postgres/database.ts'

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
    `create table ${schema}.total (consumer text, aggregate_id text, total bigint not null, primary key (consumer, aggregate_id))`,
  )
  await db.query(
    `create table ${schema}.effect (at bigint generated always as identity, consumer text, event_id uuid, aggregate_id text, version bigint)`,
  )
  await db.query(`create table ${schema}.went_back (note text)`)
  await db.query(
    `create function ${schema}.watch_version() returns trigger language plpgsql as $$ begin
       if new.version < old.version then insert into ${schema}.went_back values (new.consumer_note); end if; return new; end $$;
     create trigger watch_version after update on ${schema}.note_view for each row execute function ${schema}.watch_version()`,
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

/** What is wrong: states that differ from the owner's, effects that did not happen once, versions that went back. */
export async function judge({ db, schema }: Setting, consumer: string, facts: readonly Fact[]): Promise<string[]> {
  const found: string[] = []
  const ask = async <Row>(text: string, values: readonly string[]): Promise<readonly Row[]> =>
    (await db.query(text, values)).rows as readonly Row[]
  const effects = await ask<{ event_id: string; aggregate_id: string; version: number }>(
    `select event_id::text, aggregate_id, version::int from ${schema}.effect where consumer = $1 order by at`,
    [consumer],
  )
  const counts = new Map<string, number>()
  for (const { event_id: id } of effects) counts.set(id, (counts.get(id) ?? 0) + 1)
  for (const [id, own] of Map.groupBy(facts, ({ aggregateId }) => aggregateId)) {
    const type = own[0]?.aggregateType
    const expected = fold(own)
    const [row] =
      type === 'note'
        ? await ask<{ value: number }>(
            `select amount::int as value from ${schema}.note_view where consumer_note = $1 and deleted_at is null`,
            [`${consumer} ${id}`],
          )
        : await ask<{ value: number }>(
            `select total::int as value from ${schema}.total where consumer = $1 and aggregate_id = $2`,
            [consumer, id],
          )
    if (row?.value !== expected) found.push(`${id} is ${row?.value}, and the owner has ${expected}`)
    for (const fact of own) {
      const count = counts.get(fact.id) ?? 0
      const mayBeSkipped = fact.type === 'Turned' || fact.type === 'Erased'
      if (count > 1 || (count === 0 && !mayBeSkipped && !isSuperseded(fact, own)))
        found.push(`${fact.type} ${id} ${fact.version} had ${count} effects`)
    }
    const order = effects.filter(({ aggregate_id: of }) => of === id).map(({ version }) => version)
    if (type !== 'note' && order.some((version, i) => version < (order[i - 1] ?? 0)))
      found.push(`${id} was applied as ${order.join(' ')}`)
  }
  for (const { note } of await ask<{ note: string }>(`select note from ${schema}.went_back where note like $1`, [
    `${consumer} %`,
  ]))
    found.push(`${note} went back`)
  return found
}

/** A state of a meter may be skipped for a later one; every event of the other streams must have its effect. */
function isSuperseded({ type, version }: Fact, own: readonly Fact[]): boolean {
  return type === 'Reset' && own.some((other) => other.type === 'Reset' && other.version > version)
}
