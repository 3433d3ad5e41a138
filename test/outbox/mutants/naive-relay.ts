/**
 * The relay that most descriptions of an outbox show: every relay claims single rows with SKIP LOCKED and a lease of their
 * own, publishes them, and marks them one by one. Nothing keeps two of them off one aggregate.
 */
import { toMessage } from '../../../src/outbox/relay/message.ts'
import type { DispatchRow } from '../../../src/outbox/tables/dispatch.sql.ts'
import type { Publisher } from '../../../src/transport/port/transport.ts'
import type { OutboxFixture } from '../../setup/outbox-fixture.ts'

export interface NaiveRelay {
  pass(): Promise<'more' | 'idle'>
}

export function naiveRelay(
  { db, outbox }: Pick<OutboxFixture, 'db' | 'outbox'>,
  publisher: Publisher,
  batchSize: number,
): NaiveRelay {
  const { dispatch, outbox: events } = outbox.tables
  const options = { signal: new AbortController().signal, maySend: () => true }
  return {
    pass: async () => {
      const { rows } = await db.query(
        `with claimed as materialized (
           select seq from ${dispatch.quoted} where state = 0 and (next_retry_at is null or next_retry_at < clock_timestamp())
            order by seq limit $1 for update skip locked),
         leased as (
           update ${dispatch.quoted} d set next_retry_at = clock_timestamp() + interval '1 minute', publish_attempts = publish_attempts + 1
             from claimed where d.seq = claimed.seq returning d.*)
         select l.seq::text, l.lane, l.event_id::text, false as void, o.topic, o.aggregate_type, o.aggregate_id, o.version::text,
                o.event_type, o.schema_version, o.content_type, o.payload, o.headers::text, o.occurred_at::text
           from leased l join ${events.quoted} o on o.id = l.event_id order by l.seq`,
        [batchSize],
      )
      const found = rows as unknown as (DispatchRow & { readonly topic: string })[]
      const outcomes = await publisher.publish(
        found.map((row) => toMessage(row, 'aggregate')),
        options,
      )
      for (const [index, row] of found.entries()) {
        if (outcomes[index]?.status === 'confirmed') await db.query(`delete from ${dispatch.quoted} where seq = $1`, [row.seq])
        else await db.query(`update ${dispatch.quoted} set next_retry_at = clock_timestamp() where seq = $1`, [row.seq])
      }
      return found.length === 0 ? 'idle' : 'more'
    },
  }
}
