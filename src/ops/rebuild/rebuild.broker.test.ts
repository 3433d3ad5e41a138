import { PubSub } from '@google-cloud/pubsub'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { mails, videos } from '../../../test/setup/consumer-fixture.ts'
import { rebuildWorld, standingClock, type RebuildWorld } from '../../../test/setup/rebuild-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { createPubsubAdmin, type PubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import { pubsub } from '../../transport/pubsub/pubsub.ts'
import { desiredResources, type ProvisionOptions } from '../provision/desired.ts'
import { applyProvision, planProvision } from '../provision/provision.ts'
import type { RebuildProgress } from './run.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const ids = Array.from({ length: 20 }, (_, i) => `v${String(i).padStart(2, '0')}`)

let server: PubsubServer
let projects = 0
const admins: PubsubAdmin[] = []

beforeAll(async () => {
  server = await startPubsubServer()
})

afterAll(async () => {
  await Promise.all(admins.map((admin) => admin.close()))
  await server.stop()
})

type Project = Parameters<typeof createPubsubAdmin>[0]
const nothing = (_subscription: string, _project: Project): Promise<void> => Promise.resolve()

interface ProvisionedWorld extends RebuildWorld {
  /** Makes the subscription of a generation, as an operator does before a rebuild. */
  subscribe(generation: number): Promise<void>
}

/** A project of its own, provisioned for the live consumer, that has applied twenty videos. */
async function provisionedWorld(options: ProvisionOptions = {}, beforeWriting = nothing): Promise<ProvisionedWorld> {
  projects += 1
  const project = { projectId: `rebuild-${projects}`, emulatorHost: server.emulatorHost }
  const admin = createPubsubAdmin(project)
  admins.push(admin)
  const consumers = [{ name: 'catalog', streams: [videos] }]
  const desired = desiredResources({ streams: [videos, mails], consumers, ...options })
  await applyProvision(admin, await planProvision(admin, desired))
  const world = await rebuildWorld(db, { transport: pubsub(project), videos })
  await beforeWriting(`${videos.topic}.catalog`, project)
  for (const id of ids) await world.write(id)
  await world.settle()
  const [live] = desired.subscriptions
  const subscribe = (generation: number): Promise<void> =>
    admin.createSubscription({ ...live!, name: `${live!.name}.g${generation}`, deadLetter: undefined })
  return { ...world, subscribe }
}

test('a rebuild over Pub/Sub has what the topic keeps, though its subscription was made after all of it', async () => {
  const w = await provisionedWorld()
  await w.remove('v07')
  await w.settle()
  await w.query(`update $schema.video_view set title = 'wrong' where video_id < 'v05'`)
  await w.subscribe(2)
  const report = await w.rebuild({ from: 'earliest', swap: true })
  expect(report).toMatchObject({ swapped: true, generation: 2, aggregates: 20 })
  expect(await w.shown()).toEqual(await w.owner())
  expect(w.handledAgain()).toBe(0)
  await w.end()
})

test('a rebuild over Pub/Sub without its subscription, or its snapshot, says what to make, and goes on when that is there', async () => {
  const w = await provisionedWorld()
  await expect(w.rebuild({ from: 'earliest' })).rejects.toMatchObject({
    code: 'NOT_FOUND',
    message: expect.stringMatching(/as catalog\.g2: it is not there\. Make it first/),
  })
  await w.subscribe(2)
  expect(await w.rebuild({ swap: true })).toMatchObject({ swapped: true, aggregates: 20 })
  await w.subscribe(3)
  await expect(w.rebuild({ from: 'snapshot:lost' })).rejects.toMatchObject({
    code: 'NOT_FOUND',
    message: expect.stringMatching(/as catalog\.g3: it, or snapshot lost of the topic, is not there/),
  })
  await w.end()
})

test('where the topic keeps nothing, a rebuild over Pub/Sub has only what comes after its subscription, and says so', async () => {
  const w = await provisionedWorld({ topicRetentionSeconds: 0 })
  await w.query(`update $schema.consumer_position set updated_at = clock_timestamp() - interval '1 minute'`)
  await w.subscribe(2)
  await w.write('late')
  await w.settle()
  const clock = standingClock()
  const onProgress = ({ reached }: RebuildProgress): void => {
    if (reached === 1) clock.advance(50)
  }
  await expect(w.rebuild({ from: 'earliest', swap: true, stallMs: 100, clock, onProgress })).rejects.toMatchObject({
    code: 'REFUSED',
    details: { reached: 1, total: 21 },
  })
  expect(await w.shown()).toEqual(await w.owner())
  await w.end()
})

test('a rebuild over Pub/Sub from a snapshot has what came after it, also where the topic keeps nothing', async () => {
  const w = await provisionedWorld({ topicRetentionSeconds: 0 }, async (subscription, { projectId }) => {
    const client = new PubSub({ projectId, apiEndpoint: server.emulatorHost })
    await client.subscription(subscription).createSnapshot('empty')
    await client.close()
  })
  await w.subscribe(2)
  expect(await w.rebuild({ from: 'snapshot:empty', swap: true })).toMatchObject({ swapped: true, aggregates: 20 })
  expect(await w.shown()).toEqual(await w.owner())
  await w.end()
})
