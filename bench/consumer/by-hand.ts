/**
 * The same work without us: a transaction per event as it is usually written, and bare set-based statements, the limit.
 */
import type { Connection } from '../../src/postgres/connect.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import type { ConsumerBench, Fact } from './consumer-bench.ts'

/** Events per second of `parallel` loops, each with one transaction per event: dedupe, versioned upsert. */
export async function perEvent({ db, facts, quick }: ConsumerBench, count: number, parallel: number): Promise<number> {
  const waiting = [...facts(quick ? Math.ceil(count / 5) : count)]
  const total = waiting.length
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: parallel }, async () => {
      for (let fact = waiting.pop(); fact !== undefined; fact = waiting.pop()) await applyOne(db, fact)
    }),
  )
  return (total / (performance.now() - startedAt)) * 1_000
}

async function applyOne(db: Connection, { id, aggregateId, version, data }: Fact): Promise<void> {
  await transaction(db, async (tx) => {
    const { rowCount } = await tx.query(
      `insert into plain_inbox (consumer, event_id) values ('bench', $1) on conflict do nothing`,
      [id],
    )
    if (rowCount === 0) return
    await tx.query(
      `insert into plain_video as v (video_id, title, url, views, version) values ($1, $2, $3, $4, $5)
       on conflict (video_id) do update set title = excluded.title, url = excluded.url, views = excluded.views, version = excluded.version
        where v.version < excluded.version`,
      [aggregateId, data.title, data.url, data.views, version],
    )
  })
}

/** Events per second of `parallel` loops over batches of 500: one statement to dedupe in a copy of our inbox, one to upsert. */
export async function setBased({ db, facts, quick }: ConsumerBench, count: number, parallel: number): Promise<number> {
  const all = facts(quick ? Math.ceil(count / 5) : count)
  const batches: (readonly Fact[])[] = []
  for (let from = 0; from < all.length; from += 500) batches.push(all.slice(from, from + 500))
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: parallel }, async () => {
      for (let batch = batches.shift(); batch !== undefined; batch = batches.shift()) await applyAll(db, batch)
    }),
  )
  return (all.length / (performance.now() - startedAt)) * 1_000
}

async function applyAll(db: Connection, batch: readonly Fact[]): Promise<void> {
  const records = JSON.stringify(batch.map(({ aggregateId, version, data }) => ({ video_id: aggregateId, version, ...data })))
  await transaction(db, async (tx) => {
    await tx.query(
      `insert into copied_inbox (consumer, generation, event_id, source) select 'by hand', 1, id, 'video' from unnest($1::text::uuid[]) as i (id) order by id on conflict do nothing returning event_id`,
      [`{${batch.map(({ id }) => id).join()}}`],
    )
    await tx.query(
      `insert into plain_video as v (video_id, title, url, views, version)
       select video_id, title, url, views, version from json_populate_recordset(null::plain_video, $1::text::json) order by video_id
       on conflict (video_id) do update set title = excluded.title, url = excluded.url, views = excluded.views, version = excluded.version
        where v.version < excluded.version`,
      [records],
    )
  })
}
