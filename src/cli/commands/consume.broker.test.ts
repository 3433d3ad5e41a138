import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { published, videos } from '../../../test/setup/consumer-fixture.ts'
import { runLine } from '../../../test/setup/run-line.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { defaultSignals } from '../../core/signals.ts'
import { desiredResources } from '../../ops/provision/desired.ts'
import { applyProvision, planProvision } from '../../ops/provision/provision.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { eventually } from '../../testing/kit/eventually.ts'
import { createPubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import { pubsub } from '../../transport/pubsub/pubsub.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-consume-cli-'))
const source = (path: string): string => JSON.stringify(new URL(`../../../${path}`, import.meta.url).href)
let server: PubsubServer

beforeAll(async () => {
  server = await startPubsubServer()
  await migrate(db, { schema: 'waybill', service: 'test' })
  await writeFile(
    join(folder, 'waybill.config.ts'),
    `import { createConsumer } from ${source('src/consumer/consumer.ts')}
     import { pubsub } from ${source('src/transport/pubsub/pubsub.ts')}
     import { videos } from ${source('test/setup/consumer-fixture.ts')}
     export default {
       service: 'test',
       transport: () => pubsub({ projectId: 'shop', emulatorHost: '${server.emulatorHost}' }),
       consumers: (context) => ['catalog', 'search', 'ledger', 'audit'].map((name) => {
         const onPoison = name === 'ledger' || name === 'audit' ? 'stop' : 'dead-letter'
         return createConsumer({ ...context, name, streams: [videos], onPoison, pollMs: 5 }).on(videos.VideoPublished, () => undefined)
       }),
     }`,
  )
})

afterAll(async () => {
  await server.stop()
  await rm(folder, { recursive: true })
})

test('what Pub/Sub gave up becomes a dead letter here; a consumer whose dead letters cannot be read goes on without', async () => {
  const admin = createPubsubAdmin({ projectId: 'shop', emulatorHost: server.emulatorHost })
  const consumers = [
    { name: 'catalog', streams: [videos] },
    { name: 'search', streams: [videos], onPoison: 'stop' },
  ] as const
  await applyProvision(admin, await planProvision(admin, desiredResources({ streams: [videos], consumers })))
  await admin.close()
  const transport = pubsub({ projectId: 'shop', emulatorHost: server.emulatorHost })
  // As Pub/Sub does itself, after so many deliveries.
  const given = { ...published('a', 1), topic: `${videos.topic}.catalog.dead` }
  await transport.publish([given, published('b', 1)], { signal: new AbortController().signal, maySend: () => true })
  await transport.close()
  const stop = new AbortController()
  const consuming = runLine('consume --consumer catalog,search', {
    folder,
    env: { DATABASE_URL: database.url },
    signal: stop.signal,
  })
  const letters = async (): Promise<unknown> =>
    (await db.query('select consumer, reason, aggregate_id, version::int from waybill.dead_letter')).rows
  const applied = async (): Promise<readonly unknown[]> => (await db.query('select consumer from waybill.inbox order by 1')).rows
  await eventually(async () => (await applied()).length === 2)
  await eventually(async () => ((await letters()) as unknown[]).length === 1)
  stop.abort()
  expect(await consuming).toMatchObject({ code: 0 })
  expect(await letters()).toEqual([{ consumer: 'catalog', reason: 'broker', aggregate_id: 'a', version: 1 }])
  expect(await applied()).toEqual([{ consumer: 'catalog' }, { consumer: 'search' }])
})

test('what Pub/Sub gave up of a consumer that stops becomes a dead letter, too, and where it gives nothing up that is no disturbance', async () => {
  const admin = createPubsubAdmin({ projectId: 'shop', emulatorHost: server.emulatorHost })
  // As it was when the first of them did not stop yet.
  const consumers = [
    { name: 'ledger', streams: [videos] },
    { name: 'audit', streams: [videos], onPoison: 'stop' },
  ] as const
  await applyProvision(admin, await planProvision(admin, desiredResources({ streams: [videos], consumers })))
  await admin.close()
  const transport = pubsub({ projectId: 'shop', emulatorHost: server.emulatorHost })
  const given = { ...published('x', 1), topic: `${videos.topic}.ledger.dead` }
  await transport.publish([given, published('y', 1)], { signal: new AbortController().signal, maySend: () => true })
  await transport.close()
  const disturbed: string[] = []
  onTestFinished(defaultSignals.on('consumer.disturbed', ({ consumer, topic }) => void disturbed.push(`${consumer} ${topic}`)))
  const stop = new AbortController()
  const env = { DATABASE_URL: database.url }
  const consuming = runLine('consume --consumer ledger,audit', { folder, env, signal: stop.signal })
  const query = async (text: string): Promise<readonly unknown[]> => (await db.query(text)).rows
  const ours = `where consumer in ('ledger', 'audit')`
  await eventually(async () => (await query(`select from waybill.inbox ${ours}`)).length === 2)
  const letters = (): Promise<readonly unknown[]> =>
    query(`select consumer, reason, aggregate_id from waybill.dead_letter ${ours}`)
  await eventually(async () => (await letters()).length === 1)
  stop.abort()
  expect(await consuming).toMatchObject({ code: 0 })
  expect(await letters()).toEqual([{ consumer: 'ledger', reason: 'broker', aggregate_id: 'x' }])
  expect(disturbed.filter((each) => each.startsWith('audit'))).toEqual([])
})
