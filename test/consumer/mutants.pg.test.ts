/**
 * The check of exactly-once.pg.test.ts is only worth something if it finds consumers that break one rule. Each mutant breaks
 * one, through a port or in the schema, and must be caught in one of thirty worlds. Some escape every second one; the world in
 * which a mutant is caught is its last.
 */
import { expect, test } from 'vitest'
import { z } from 'zod'
import { state } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { testDatabase } from '../setup/test-database.ts'
import { createChaosTables, meters, notes } from './chaos-history.ts'
import { happen, restless, type Mutation, type World } from './chaos.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Versions beyond 9, all kinds, several instances that die. */
const worldOf = (seed: number): World => ({
  seed,
  histories: (['note', 'note', 'wallet', 'wallet', 'meter'] as const).map((aggregateType, i) => ({
    aggregateType,
    choices: Array.from({ length: 13 }, (_, n) => ((n + 1) * (37 + i + seed)) % 99),
  })),
  instances: 2 + (Math.floor(seed / 3) % 3),
  batchSize: [1, 7, 500][seed % 3] ?? 1,
  deaths: [7 + seed, 19, 31 + seed, 11],
})

/** How many statements were changed: a mutant that changes none proves nothing. */
let rewritten = 0

/** Statements as they go to the database, changed. */
function rewriting(from: string | RegExp, to: string): NonNullable<Mutation['database']> {
  const changed = (text: string): string => {
    const other = text.replaceAll(from, to)
    if (other !== text) rewritten += 1
    return other
  }
  return (inner) =>
    ({
      query: (text, values) => inner.query(changed(text), values),
      attempt: (options, work) =>
        inner.attempt(options, (tx) =>
          work(
            new Proxy(tx, {
              get: (target, property) =>
                property === 'query'
                  ? (text: string, values?: never) => target.query(changed(text), values)
                  : Reflect.get(target, property),
            }),
          ),
        ),
    }) satisfies Database
}

interface Mutant extends Mutation {
  readonly name: string
  /** What gives it away. */
  readonly found: RegExp
  /** Whether all that it was sent must be settled in the end, so that nothing is missing only because it was slow. @default true */
  readonly rests?: boolean
  /** What is changed in the schema. */
  readonly schemaChange?: (schema: string) => string
}

const change = z.object({ amount: z.number() })

const mutants: readonly Mutant[] = [
  {
    name: 'acknowledges before the commit',
    found: /one-effect: note \S+ v\d+ was never applied/,
    // The deltas behind a lost one may wait for ever.
    rests: false,
    delivery: (delivery) => {
      void delivery.ack()
      return delivery
    },
  },
  {
    name: 'looks for duplicates before it writes',
    found: /one-effect: .* was applied twice/,
    schemaChange: (schema) => `alter table ${schema}.inbox drop constraint inbox_pkey`,
    database: rewriting(
      /where \(select count\(\*\) from known\) >= 0 order by i\.event_id\s+on conflict do nothing/g,
      'where (select count(*) from known) >= 0 and not exists (select from $inbox x where x.consumer = $mine and x.event_id = i.event_id) order by i.event_id',
    ),
  },
  {
    name: 'deletes rows instead of keeping tombstones',
    found: /version-monotonic: note .* went back|projection-equals-owner: note/,
    schemaChange: (schema) =>
      `create function ${schema}.bury() returns trigger language plpgsql as $$ begin delete from ${schema}.note_view where consumer_note = new.consumer_note; return null; end $$;
       create trigger bury after insert or update on ${schema}.note_view for each row when (new.deleted_at is not null) execute function ${schema}.bury()`,
  },
  {
    name: 'compares versions as text',
    found: /projection-equals-owner: note|version-monotonic: note/,
    database: rewriting(
      'coalesce(stored."version", 0) < excluded."version"',
      'coalesce(stored."version", 0)::text < excluded."version"::text',
    ),
  },
  {
    name: 'applies deltas over a gap',
    found: /version-monotonic: wallet .* went back|projection-equals-owner: wallet/,
    streams: [notes, stream('wallet', { topic: 'note.events', events: { Moved: state(change) } }) as never, meters],
  },
  {
    name: 'has an inbox without the consumer’s name',
    found: /one-effect: .* was never applied/,
    schemaChange: (schema) => `create unique index on ${schema}.inbox (event_id)`,
  },
  {
    name: 'has no inbox at all',
    found: /one-effect: .* was applied twice/,
    schemaChange: (schema) => `alter table ${schema}.inbox drop constraint inbox_pkey`,
  },
]

test.each(mutants)(
  'a consumer that $name is found out',
  async ({ name: _name, schemaChange, found: reason, rests = true, ...mutation }) => {
    const schema = `mutant_${mutants.findIndex(({ name }) => name === _name)}`
    await migrate(db, { schema, service: 'test' })
    await createChaosTables({ db, schema })
    if (schemaChange !== undefined) await db.query(schemaChange(schema))
    rewritten = 0
    const patienceMs = rests ? 60_000 : 6_000
    const found: string[] = []
    for (let seed = 1; seed <= 30 && !found.some((each) => reason.test(each)); seed += 1)
      found.push(...(await happen({ db, schema }, worldOf(seed), { patienceMs, ...named(mutation, schema) })))
    expect(rewritten > 0).toBe(mutation.database !== undefined)
    expect(found).toEqual(expect.arrayContaining([expect.stringMatching(reason)]))
    expect(rests && found.some((each) => each.endsWith(restless))).toBe(false)
  },
  600_000,
)

test('the same worlds find nothing wrong with the consumer as it is', async () => {
  const schema = 'sound'
  await migrate(db, { schema, service: 'test' })
  await createChaosTables({ db, schema })
  for (const seed of [1, 2, 3]) expect(await happen({ db, schema }, worldOf(seed))).toEqual([])
}, 180_000)

/** The table's name, which a rewritten statement needs. */
function named(mutation: Mutation, schema: string): Mutation {
  if (mutation.database === undefined) return mutation
  return {
    ...mutation,
    database: (inner) => mutation.database?.(rewriting('$inbox', `${schema}.inbox`)(rewriting('$mine', '$3')(inner))) ?? inner,
  }
}
