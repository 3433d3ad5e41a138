/**
 * The whole way, from `add` over a relay and a broker to effects: the same consumer on every transport, in both modes.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { seededRandom } from '../../src/core/service/random.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import { postgresTransport } from '../../src/transport/postgres/postgres-transport.ts'
import { makePubsubTopic } from '../../src/drill/target/pubsub-topic.ts'
import { createPubsubAdmin } from '../../src/transport/pubsub/admin/admin.ts'
import { pubsub } from '../../src/transport/pubsub/pubsub.ts'
import type { Transport } from '../../src/transport/port/transport.ts'
import { accounts, consumerFixture, videos } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
let server: PubsubServer

beforeAll(async () => {
  server = await startPubsubServer()
})
afterAll(async () => {
  await server.stop()
})

const transports: Readonly<Record<string, (schema: string) => Promise<Transport>>> = {
  'memory on a bad day': () => Promise.resolve(memory({ nasty: true, random: seededRandom(7) })),
  postgres: (schema) => Promise.resolve(postgresTransport({ db, schema })),
  'Pub/Sub': async (schema) => {
    const projectId = `shop-${schema.replaceAll('_', '-')}`
    const admin = createPubsubAdmin({ projectId, emulatorHost: server.emulatorHost })
    for (const topic of [videos.topic, accounts.topic]) await makePubsubTopic(admin, topic, ['catalog'])
    await admin.close()
    return pubsub({ projectId, emulatorHost: server.emulatorHost })
  },
}

const cases = Object.keys(transports).flatMap((name) => (['direct', 'stored'] as const).map((mode) => ({ name, mode })))

test.each(cases)(
  'over $name, in $mode mode, every event has its effect once, in the order of versions',
  async ({ name, mode }) => {
    const fixture = await consumerFixture(db)
    const transport = (await transports[name]?.(fixture.schema)) as Transport
    const relay = createRelay({ db, outbox: fixture.outbox, transport, backoff: { firstMs: 5, maxMs: 20 } })
    const build = (): ReturnType<typeof fixture.consumer> =>
      fixture
        .consumer({ transport, mode })
        .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
        .on(accounts.Deposited, async (event, { tx }) => {
          await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
            event.id,
            event.aggregateId,
            String(event.version),
          ])
        })
    const stopping = new AbortController()
    const life = { stopping: stopping.signal, aborting: new AbortController().signal }
    const relaying = relay.run(life)
    const stop = fixture.start(build(), build())
    for (let round = 1; round <= 15; round += 1) {
      await transaction(db, async (tx) => {
        for (const id of ['a', 'b', 'c', 'd']) {
          await fixture.outbox.add(tx, accounts.Deposited, id, { amount: round })
          await fixture.outbox.add(tx, videos.VideoPublished, id, { title: `${id} ${round}` })
        }
      })
    }
    await eventually(async () => (await fixture.count('inbox')) === 120, { timeoutMs: 60_000 })
    await stop()
    stopping.abort()
    await relaying
    await transport.close()
    const applied = await fixture.query<{ id: string; versions: number[] }>(
      'select aggregate_id as id, array_agg(version::int order by at) as versions from $schema.effect group by 1 order by 1',
    )
    const inOrder = Array.from({ length: 15 }, (_, i) => i + 1)
    expect(applied).toEqual(['a', 'b', 'c', 'd'].map((id) => ({ id, versions: inOrder })))
    expect(await fixture.query('select title, version::int from $schema.video_view order by 1')).toEqual(
      ['a', 'b', 'c', 'd'].map((id) => ({ title: `${id} 15`, version: 15 })),
    )
    expect(await fixture.count('inbox_message')).toBe(0)
  },
  120_000,
)
