/**
 * The outbox as it is usually written: one table, rows leased with SKIP LOCKED, each marked by an UPDATE of its own.
 *
 * It is given its best batch size, an index for its claim, and order within the batch. It is here to be measured against.
 */
import { randomUUID } from 'node:crypto'
import type { OutboxBench } from './outbox-bench.ts'

export async function createDocumentsOutbox({ db }: OutboxBench): Promise<void> {
  await db.query(`
    create table documents_outbox (
      id uuid primary key, aggregate_type text not null, aggregate_id text not null, version bigint not null, event_type text not null,
      payload bytea not null, headers jsonb not null default '{}', occurred_at timestamptz not null default now(),
      published_at timestamptz, publish_attempts int not null default 0, next_retry_at timestamptz, lock_token uuid, locked_at timestamptz)`)
  await db.query('create index on documents_outbox (occurred_at, id) where published_at is null')
}

export async function fillDocuments({ db }: OutboxBench, count: number): Promise<void> {
  await db.query('truncate documents_outbox')
  await db.query(
    `insert into documents_outbox (id, aggregate_type, aggregate_id, version, event_type, payload)
     select uuidv7(), 'bench', 'a' || (g % 5000), g / 5000 + 1, 'Happened', convert_to(repeat('x', 300), 'UTF8') from generate_series(0, $1::int - 1) g`,
    [count],
  )
}

/** Events per second over the first `count` of the backlog: claim a batch, publish, mark each row. */
export async function drainDocuments(
  { db }: OutboxBench,
  { count, batchSize }: { readonly count: number; readonly batchSize: number },
): Promise<number> {
  const startedAt = performance.now()
  let published = 0
  while (published < count) {
    const token = randomUUID()
    const { rows } = await db.query(
      `with claimed as materialized (
         select id from documents_outbox
          where published_at is null and (next_retry_at is null or next_retry_at <= now()) and (lock_token is null or locked_at < now() - interval '30 seconds')
          order by occurred_at, id limit $1 for update skip locked)
       update documents_outbox o set lock_token = $2::text::uuid, locked_at = now(), publish_attempts = publish_attempts + 1
         from claimed where o.id = claimed.id returning o.*`,
      [batchSize, token],
    )
    if (rows.length === 0) break
    for (const row of rows as { id: string }[]) {
      await db.query(
        'update documents_outbox set published_at = now(), lock_token = null where id = $1::text::uuid and lock_token = $2::text::uuid',
        [row.id, token],
      )
    }
    published += rows.length
  }
  return (published / (performance.now() - startedAt)) * 1_000
}
