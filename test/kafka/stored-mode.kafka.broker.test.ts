import { afterEach, expect, test } from 'vitest'
import { z } from 'zod'
import type { Consumer } from '../../src/consumer/consumer.ts'
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import { delta } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { publishAll } from '../../src/testing/contract/probe.ts'
import { connectKafka } from '../../src/transport/kafka/client/connect.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import type { OutgoingMessage, Transport } from '../../src/transport/port/transport.ts'
import { consumerFixture, deposited, type ConsumerFixture } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'
import { testKafka } from '../setup/test-kafka.ts'
import { judgeLooks, observeOffsets } from './offset-observer.ts'
import { eventsByPlace, readTopic } from './read-topic.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const { brokers, admin, makeTopic } = await testKafka()
const open: Transport[] = []
afterEach(async () => {
  await Promise.all(open.splice(0).map((each) => each.close()))
})

function transport(): Transport {
  const times = { heartbeatMs: 50, sessionTimeoutMs: 60_000, fetchMaxWaitMs: 50 }
  const opened = kafka({ brokers, minInsyncReplicas: 1, ...times })
  open.push(opened)
  return opened
}

/** A consumer in stored mode that writes every event down in the order in which it is applied. */
function consumer(fixture: ConsumerFixture, topic: string, options: Partial<ConsumerOptions> = {}): Consumer {
  const ledger = stream('account', { topic, events: { Deposited: delta(z.object({ amount: z.number() })) } })
  const made = fixture.consumer({ transport: transport(), name: 'ledger', streams: [ledger], mode: 'stored', ...options })
  made.on(ledger.Deposited, async ({ id, aggregateId, version }, { tx }) => {
    await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
      id,
      aggregateId,
      String(version),
    ])
  })
  return made
}

/** The database, with something that happens before what was received is stored. */
function beforeStoring(happen: () => Promise<void>): Database {
  return {
    attempt: (begin, work) => db.attempt(begin, work),
    query: async (text, values) => {
      if (/^\s*insert into \S*"inbox_message"/.test(text)) await happen()
      return db.query(text, values)
    },
  }
}

const isCommitted = async (topic: string): Promise<boolean> => {
  const [committed, ends] = await Promise.all([admin.committedOffsets(topic, `${topic}.ledger`), admin.endOffsets(topic)])
  return [...ends].every(([partition, end]) => (committed.get(partition) ?? 0n) === end)
}

test('stored mode over Kafka applies every event once, in the order of versions, with no offset ahead of the store', async () => {
  const fixture = await consumerFixture(db)
  const topic = await makeTopic()
  const readStored = async (): Promise<readonly string[]> => {
    const text = 'select event_id::text as id from $schema.inbox union select event_id::text from $schema.inbox_message'
    return (await fixture.query<{ id: string }>(text)).map(({ id }) => id)
  }
  const observer = observeOffsets({ admin, topic, group: `${topic}.ledger`, readProcessed: readStored })
  const ids = ['a', 'b', 'c', 'd', 'e']
  const versions = Array.from({ length: 30 }, (_, i) => i + 1)
  // Slow enough that an offset which did not wait for it would be seen.
  const slow = beforeStoring(async () => {
    const enough = observer.looks.length + 2
    await eventually(() => observer.looks.length >= enough, { intervalMs: 2 })
  })
  const stop = fixture.start(consumer(fixture, topic, { db: slow }), consumer(fixture, topic, { db: slow }))
  const publisher = transport()
  let before: readonly OutgoingMessage[] = []
  let leave = (): Promise<void> => Promise.resolve()
  for (const version of versions) {
    const messages = ids.map((id) => ({ ...deposited(id, version, version), topic }))
    // A relay that was stopped after its publish sends the same again.
    await publishAll(publisher, version % 10 === 0 ? [...before, ...messages] : messages)
    before = messages
    // Another joins while they work, and leaves again.
    if (version === 12) leave = fixture.start(consumer(fixture, topic, { db: slow }))
    if (version === 24) await leave()
  }
  await eventually(async () => (await fixture.count('effect')) >= 150 && (await isCommitted(topic)), { timeoutMs: 60_000 })
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await stop()
  await observer.stop()
  const client = connectKafka({ brokers })
  const log = eventsByPlace(await readTopic(client, topic))
  await client.close()
  expect(judgeLooks(observer, log)).toEqual([])
  expect(
    await fixture.query(
      'select aggregate_id as id, array_agg(version::int order by at) as versions from $schema.effect group by 1 order by 1',
    ),
  ).toEqual(ids.map((id) => ({ id, versions })))
})

test('an offset is committed only when what was received is stored, and not where storing failed', async () => {
  const fixture = await consumerFixture(db)
  const topic = await makeTopic({ partitions: 1 })
  const isMended = Promise.withResolvers<void>()
  let tries = 0
  const ailing = beforeStoring(async () => {
    tries += 1
    if (tries === 1) throw new Error('The disk is full.')
    await isMended.promise
  })
  const committed = async (): Promise<bigint | undefined> => (await admin.committedOffsets(topic, `${topic}.ledger`)).get(0)
  const versions = [1, 2, 3]
  const stop = fixture.start(consumer(fixture, topic, { db: ailing }))
  await publishAll(
    transport(),
    versions.map((version) => ({ ...deposited('a', version, version), topic })),
  )
  // What could not be stored comes again: nobody has committed it.
  await eventually(() => tries >= 2)
  expect([await committed(), await fixture.count('inbox_message')]).toEqual([undefined, 0])
  isMended.resolve()
  await eventually(async () => (await committed()) === 3n && (await fixture.count('effect')) === 3)
  await stop()
  const applied = await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')
  expect(applied.map(({ version }) => version)).toEqual(versions)
})
