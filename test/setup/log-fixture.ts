/**
 * A consumer's database and a log of partitions beside it, for tests of offsets that are kept in Postgres. Every test that
 * uses it would notice an offset that went back within its topic: the database refuses it.
 */
import type { Consumer } from '../../src/consumer/consumer.ts'
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { consumerFixture, videos, type ConsumerFixture } from './consumer-fixture.ts'
import { PartitionedBroker } from './partitioned-broker.ts'

export interface LogFixture extends ConsumerFixture {
  readonly log: PartitionedBroker
  /** A consumer of videos without an inbox, that writes down every event it handles; `fails` may throw. */
  recorder(options?: Partial<ConsumerOptions>, fails?: (name: string, attempt: number) => void): Consumer
  effects(): Promise<readonly string[]>
  offsets(): Promise<readonly string[]>
}

export async function logFixture(db: Database): Promise<LogFixture> {
  const fixture = await consumerFixture(db)
  const log = new PartitionedBroker()
  await fixture.query(
    `create function $schema.only_forward() returns trigger language plpgsql as $$ begin
       if new.next_offset <= old.next_offset and new.topic_id is not distinct from old.topic_id then raise 'offset % after %', new.next_offset, old.next_offset; end if; return new; end $$`,
  )
  await fixture.query(
    'create trigger only_forward before update on $schema.consumer_offset for each row execute function $schema.only_forward()',
  )
  return {
    ...fixture,
    log,
    recorder: (options, fails) =>
      fixture
        .consumer({ streams: [videos], transport: log, offsets: 'postgres', inbox: false, ...options })
        .on(videos.VideoPublished, async (event, { tx, attempt }) => {
          await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
            event.id,
            event.aggregateId,
            String(event.version),
          ])
          fails?.(`${event.aggregateId} ${event.version}`, attempt)
        }),
    effects: async () =>
      (
        await fixture.query<{ name: string }>(`select aggregate_id || ' ' || version as name from $schema.effect order by at`)
      ).map(({ name }) => name),
    offsets: async () =>
      (
        await fixture.query<{ at: string }>(
          `select partition || ' ' || next_offset as at from $schema.consumer_offset order by 1`,
        )
      ).map(({ at }) => at),
  }
}
