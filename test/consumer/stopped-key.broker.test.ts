/**
 * A consumer that stops at what fails, on a Pub/Sub that counts deliveries and gives up after five.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { desiredResources, type ProvisionedConsumer } from '../../src/ops/provision/desired.ts'
import { applyProvision, planProvision } from '../../src/ops/provision/provision.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createPubsubAdmin } from '../../src/transport/pubsub/admin/admin.ts'
import { pubsub } from '../../src/transport/pubsub/pubsub.ts'
import type { Transport } from '../../src/transport/port/transport.ts'
import { consumerFixture, published, videos, type ConsumerFixture } from '../setup/consumer-fixture.ts'
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

test('a key that is stopped stands still for more deliveries than Pub/Sub allows, and goes on in order when it is repaired', async () => {
  const scene = await stoppedAt({ onPoison: 'stop' })
  const { fixture } = scene
  await eventually(() => fixture.heard('consumer.stopped').length > 6)
  expect(await fixture.count('effect')).toBe(0)
  scene.repair()
  await fixture.settled(2)
  await scene.end()
  expect(await fixture.query('select version::int from $schema.effect order by at')).toEqual([{ version: 1 }, { version: 2 }])
  expect(fixture.heard('consumer.disturbed')).toEqual([])
})

test('a dead-letter policy that is there all the same is told of at the first delivery', async () => {
  const { fixture, end } = await stoppedAt({})
  await eventually(() => fixture.heard('consumer.disturbed').length > 0)
  await end()
  expect(fixture.heard('consumer.disturbed')[0]?.error).toMatchObject({
    code: 'INVALID_OPTION',
    message: expect.stringMatching(/has a dead-letter policy.*this is number 1/) as string,
  })
})

interface Scene {
  readonly fixture: ConsumerFixture
  readonly repair: () => void
  readonly end: () => Promise<void>
}

/** Version 1 is poison, and version 2 is behind it. */
async function stoppedAt(more: Pick<ProvisionedConsumer, 'onPoison'>): Promise<Scene> {
  const fixture = await consumerFixture(db)
  const transport = await provisioned(`shop-${fixture.schema.replaceAll('_', '-')}`, more)
  let isBroken = true
  const consumer = fixture.consumer({ transport, streams: [videos], onPoison: 'stop', maxAttempts: 1 })
  const stop = fixture.start(
    consumer.on(videos.VideoPublished, async ({ version }, { tx }) => {
      if (isBroken && version === 1n) throw new Error('not today')
      await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(version)])
    }),
  )
  const sent = await transport.publish([published('a', 1), published('a', 2)], {
    signal: new AbortController().signal,
    maySend: () => true,
  })
  expect(sent.map(({ status }) => status)).toEqual(['confirmed', 'confirmed'])
  return {
    fixture,
    repair: () => void (isBroken = false),
    end: async () => {
      await stop()
      await transport.close()
    },
  }
}

async function provisioned(projectId: string, more: Pick<ProvisionedConsumer, 'onPoison'>): Promise<Transport> {
  const admin = createPubsubAdmin({ projectId, emulatorHost: server.emulatorHost })
  const desired = desiredResources({
    streams: [videos],
    consumers: [{ name: 'catalog', streams: [videos], ...more }],
    maxAttempts: 5,
    retry: { minSeconds: 0, maxSeconds: 0 },
  })
  await applyProvision(admin, await planProvision(admin, desired))
  await admin.close()
  return pubsub({ projectId, emulatorHost: server.emulatorHost })
}
