/**
 * Running consumers that write down what they apply, and what a test of forks asks of them.
 */
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import type { Consumer } from '../../src/consumer/consumer.ts'
import { discard } from '../../src/consumer/model/handler.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { OutgoingMessage } from '../../src/transport/port/transport.ts'
import { accounts, consumerFixture, videos, type ConsumerFixture } from '../setup/consumer-fixture.ts'

export const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, n) => from + n)

/** Every event as an effect; one whose data says so fails. */
const note: (fixture: ConsumerFixture) => Parameters<Consumer['on']>[1] =
  ({ schema }) =>
  async (event, { tx }) => {
    const { title, amount } = event.data as { readonly title?: string; readonly amount?: number }
    if (title === 'bad' || amount === -1) throw new Error('it fails')
    if (title === 'unwanted' || amount === -2) throw discard('never wanted')
    await tx.query(`insert into ${schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
      event.id,
      event.aggregateId,
      String(event.version),
    ])
  }

export const readers = {
  /** Versions are taken in turn. */
  deltas: (fixture: ConsumerFixture, options?: Partial<ConsumerOptions>) =>
    fixture.consumer(options).on(accounts.Deposited, note(fixture)).on(accounts.BalanceSet, note(fixture)),
  states: (fixture: ConsumerFixture, options?: Partial<ConsumerOptions>) =>
    fixture.consumer(options).on(videos.VideoPublished, note(fixture)),
  rows: (fixture: ConsumerFixture, options?: Partial<ConsumerOptions>) =>
    fixture.consumer(options).project(videos, {
      table: `${fixture.schema}.video_view`,
      key: 'video_id',
      set: ({ data }) => ({ title: data.title }),
    }),
}

export interface Reading {
  readonly fixture: ConsumerFixture
  /** Publishes, and waits until the consumer has settled all of it. */
  readonly take: (...messages: readonly OutgoingMessage[]) => Promise<void>
  readonly stop: () => Promise<void>
}

/** A running consumer of one kind. */
export async function reading(db: Database, kind: keyof typeof readers, options?: Partial<ConsumerOptions>): Promise<Reading> {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(readers[kind](fixture, options))
  let sent = 0
  const settled = (): number =>
    fixture.heard('consumer.applied').reduce((sum, { count, duplicates }) => sum + count + duplicates, 0)
  return {
    fixture,
    stop,
    take: async (...messages) => {
      await fixture.publish(...messages)
      sent += messages.length
      await eventually(() => settled() === sent)
    },
  }
}

export const forksOf = (fixture: ConsumerFixture): readonly string[] =>
  fixture
    .heard('consumer.forked')
    .map(({ aggregateId, version }) => `${aggregateId} ${version}`)
    .toSorted()
