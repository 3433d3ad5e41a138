/**
 * The catalog of deploy/ as Cloud Run would run it: gRPC with health on one HTTP/2 port, the consumer and what drains its dead letters
 * in the same process.
 */
import { Client, credentials, type ServiceError } from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { grpcHealth, type ServingStatus } from '../../src/integrations/grpc-health.ts'
import { desiredResources } from '../../src/ops/provision/desired.ts'
import { applyProvision, planProvision } from '../../src/ops/provision/provision.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { startPubsubServer } from 'waybill-pubsub-server'
import { startChild, type Child } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createPubsubAdmin } from '../../src/transport/pubsub/admin/admin.ts'
import { pubsub } from '../../src/transport/pubsub/pubsub.ts'
import { published, videos } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const server = await startPubsubServer()
afterAll(() => server.stop())
const { definition } = grpcHealth({ live: () => ({ ok: true }), ready: async () => ({ ok: true }) })

beforeAll(async () => {
  await migrate(db, { schema: 'waybill', service: 'catalog' })
  await db.query('create schema catalog')
  await db.query(
    `create table catalog.video (video_id text primary key, title text check (title <> 'refused'), url text, version bigint not null,
                                 deleted_at timestamptz)`,
  )
  const admin = createPubsubAdmin({ projectId: 'shop', emulatorHost: server.emulatorHost })
  const desired = desiredResources({ streams: [videos], consumers: [{ name: 'catalog', streams: [videos] }] })
  await applyProvision(admin, await planProvision(admin, desired))
  await admin.close()
})

function startCatalog(): Child {
  return startChild(new URL('../../deploy/catalog.ts', import.meta.url), {
    env: {
      NODE_OPTIONS: `--import ${new URL('../../scripts/from-source.ts', import.meta.url).href}`,
      DATABASE_URL: database.url,
      PUBSUB_EMULATOR_HOST: server.emulatorHost,
      PORT: '0',
      METRICS_PORT: '0',
    },
  })
}

async function publish(id: string, title: string, topic: string = videos.topic): Promise<void> {
  const transport = pubsub({ projectId: 'shop', emulatorHost: server.emulatorHost })
  const body = Buffer.from(JSON.stringify({ title, url: 'https://example.com/1' }))
  const signal = AbortSignal.timeout(60_000)
  await transport.publish([{ ...published(id, 1), body, topic }], { signal, maySend: () => true })
  await transport.close()
}

test('one HTTP/2 port answers health by gRPC, events are applied beside it, and SIGTERM ends it in order', async () => {
  await using child = startCatalog()
  const { port, metrics } = JSON.parse(await child.line('The catalog listens.')) as { port: number; metrics: string }
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure())
  const check = (service: string): Promise<ServingStatus | number> =>
    new Promise((resolve) => {
      const { path, requestSerialize, responseDeserialize } = definition.Check
      client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        { service },
        (error: ServiceError | null, status?: ServingStatus) => resolve(status ?? error?.code ?? -1),
      )
    })
  expect(await check('liveness')).toBe('SERVING')
  expect(await check('other')).toBe(5)

  await publish('v1', 'one')
  await eventually(async () => expect((await db.query('select title from catalog.video')).rows).toEqual([{ title: 'one' }]))
  await eventually(async () => expect(await check('')).toBe('SERVING'))
  expect(await check('readiness')).toBe('SERVING')
  await eventually(async () =>
    expect(await (await fetch(`${metrics}/metrics`)).text()).toContain('waybill_consumer_applied_total{consumer="catalog"} 1\n'),
  )
  client.close()
  expect(await child.kill('SIGTERM')).toEqual({ code: 0, signal: null })
})

test('what Pub/Sub gave up becomes a dead letter', async () => {
  await using child = startCatalog()
  await publish('given-up', 'two', `${videos.topic}.catalog.dead`)
  const letters = 'select consumer, aggregate_id, reason from waybill.dead_letter'
  await eventually(async () =>
    expect((await db.query(letters)).rows).toEqual([{ consumer: 'catalog', aggregate_id: 'given-up', reason: 'broker' }]),
  )
  expect(await child.kill('SIGTERM')).toEqual({ code: 0, signal: null })
})

test('a warning is logged as Google Cloud names it', async () => {
  await using child = startCatalog()
  await publish('v2', 'refused')
  expect(JSON.parse(await child.line('"signal":"consumer.failed"'))).toMatchObject({ severity: 'WARNING' })
})
