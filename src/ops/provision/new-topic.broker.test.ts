import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { eventually } from '../../testing/kit/eventually.ts'
import { createPubsubAdmin, type PubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import { pubsub } from '../../transport/pubsub/pubsub.ts'
import type { Transport } from '../../transport/port/transport.ts'
import { doctorPubsub } from '../doctor/pubsub.ts'
import { desiredResources, type DesiredResources } from './desired.ts'
import { planText } from './print.ts'
import { applyProvision, planProvision } from './provision.ts'

const videos = { topic: 'video.events', ordering: 'aggregate' } as const
const readBy = (...names: readonly string[]): DesiredResources =>
  desiredResources({ streams: [videos], consumers: names.map((name) => ({ name, streams: [videos] })), projectNumber: '1' })
const desired = readBy('catalog')
const name = 'video.events.catalog'

/** All that is done to make topics and subscriptions, in this order. */
const steps = [
  `createTopic ${name}.dead`,
  'createTopic video.events',
  `createSubscription ${name}`,
  `seekToStart ${name}`,
  `updateSubscription ${name}`,
  `createSubscription ${name}.dead.catalog`,
  `seekToStart ${name}.dead.catalog`,
  `updateSubscription ${name}.dead.catalog`,
  `updateTopic ${name}.dead`,
  'updateTopic video.events',
]

let server: PubsubServer
let admin: PubsubAdmin
let transport: Transport
let projects = 0

beforeAll(async () => {
  server = await startPubsubServer()
})

beforeEach(async () => {
  await admin?.close()
  await transport?.close()
  projects += 1
  const project = { projectId: `shop-${projects}`, emulatorHost: server.emulatorHost }
  admin = createPubsubAdmin(project)
  transport = pubsub(project)
})

afterAll(async () => {
  await admin.close()
  await transport.close()
  await server.stop()
})

/** The same admin; `afterStep` is awaited after each step, and what it throws breaks the run off there. */
function watched(afterStep: (step: string) => Promise<void> | void): PubsubAdmin {
  const watch =
    <Given extends { readonly name: string } | string, More extends readonly unknown[]>(
      method: string,
      call: (given: Given, ...more: More) => Promise<void>,
    ) =>
    async (given: Given, ...more: More): Promise<void> => {
      await call(given, ...more)
      await afterStep(`${method} ${typeof given === 'string' ? given : given.name}`)
    }
  return {
    ...admin,
    createTopic: watch('createTopic', admin.createTopic),
    updateTopic: watch('updateTopic', admin.updateTopic),
    createSubscription: watch('createSubscription', admin.createSubscription),
    updateSubscription: watch('updateSubscription', admin.updateSubscription),
    seekToStart: watch('seekToStart', admin.seekToStart),
  }
}

/** As a relay does that has waited for the topic. */
async function publish(texts: readonly string[]): Promise<void> {
  const messages = texts.map((text) => ({
    topic: 'video.events',
    orderingKey: 'video-1',
    attributes: {},
    body: Buffer.from(text),
  }))
  const outcomes = await transport.publish(messages, { signal: new AbortController().signal, maySend: () => true })
  expect(outcomes.map(({ status }) => status)).toEqual(texts.map(() => 'confirmed'))
}

async function received(): Promise<readonly string[]> {
  const texts: string[] = []
  await transport.receive({
    topic: 'video.events',
    consumer: 'catalog',
    maxMessages: 100,
    maxBytes: 1_000_000,
    onError: () => {},
    onDelivery: (delivery) => {
      texts.push(Buffer.from(delivery.message.body).toString())
      void delivery.ack()
    },
  })
  return texts
}

test('what is published as soon as a new topic is there reaches its subscription', async () => {
  const done: string[] = []
  const relayed = watched(async (step) => {
    done.push(step)
    if (step === 'createTopic video.events') await publish(['1', '2', '3'])
  })
  await applyProvision(relayed, await planProvision(relayed, desired))
  const texts = await received()
  await eventually(() => expect(texts).toEqual(['1', '2', '3']))
  expect(done).toEqual(steps)
  expect(await admin.getTopic('video.events')).toMatchObject({ retentionSeconds: 604_800 })
  expect(await admin.getTopic(`${name}.dead`)).toMatchObject({ retentionSeconds: 0 })
  expect((await planProvision(admin, desired)).changes).toEqual([])
})

test.each(steps)('a run that was broken off after %s is mended by the next, and nothing is lost', async (lastStep) => {
  const sent: string[] = []
  let isThere = false
  const publishOne = async (step: string): Promise<void> => {
    if (step === 'createTopic video.events') isThere = true
    if (!isThere) return
    sent.push(`${sent.length}: ${step}`)
    await publish(sent.slice(-1))
  }
  const broken = watched(async (step) => {
    await publishOne(step)
    if (step === lastStep) throw new Error('broken off')
  })
  await expect(applyProvision(broken, await planProvision(broken, desired))).rejects.toThrow('broken off')
  const done: string[] = []
  const next = watched(async (step) => {
    done.push(step)
    await publishOne(step)
  })
  await applyProvision(next, await planProvision(next, desired))
  const texts = await received()
  await eventually(() => expect(texts).toEqual(sent))
  // Whether a seek has been done leaves no trace, so it alone is done again.
  expect(done).toEqual(steps.slice(steps.indexOf(lastStep) + (lastStep.startsWith('seek') ? 0 : 1)))
  expect((await planProvision(admin, desired)).changes).toEqual([])
})

test('the doctor names what a run that was broken off has not finished', async () => {
  const plain = { ...desired, grants: [] }
  const broken = watched((step) => {
    if (step === `createSubscription ${name}.dead.catalog`) throw new Error('broken off')
  })
  await expect(applyProvision(broken, await planProvision(broken, plain))).rejects.toThrow('broken off')
  const found = await doctorPubsub(admin, { desired: plain })
  expect(found.map(({ problem, resource }) => `${resource} ${problem}`)).toEqual([
    `${name}.dead unfinished`,
    'video.events unfinished',
    `${name}.dead.catalog unfinished`,
  ])
  for (const { text } of found) expect(text).toContain('Run: waybill provision --apply')
  await applyProvision(admin, await planProvision(admin, plain))
  expect(await doctorPubsub(admin, { desired: plain })).toEqual([])
})

test('a subscription of a topic that is in service is not sought, whatever is changed', async () => {
  await applyProvision(admin, await planProvision(admin, desired))
  await admin.updateTopic({ name: 'video.events', retentionSeconds: 86_400, schema: undefined }, ['retentionSeconds'])
  await admin.updateSubscription({ ...desired.subscriptions[0]!, retentionSeconds: 2_678_400 }, ['retentionSeconds'])
  const done: string[] = []
  const seen = watched((step) => void done.push(step))
  await applyProvision(seen, await planProvision(seen, readBy('catalog', 'search')))
  const search = 'video.events.search'
  expect(done).toEqual([
    `createTopic ${search}.dead`,
    'updateTopic video.events',
    `updateSubscription ${name}`,
    `createSubscription ${search}`,
    `createSubscription ${search}.dead.search`,
    `seekToStart ${search}.dead.search`,
    `updateSubscription ${search}.dead.search`,
    `updateTopic ${search}.dead`,
  ])
})

test('a topic without subscriptions of its own is made as it is wanted', async () => {
  const done: string[] = []
  const seen = watched((step) => void done.push(step))
  await applyProvision(seen, await planProvision(seen, readBy()))
  expect(done).toEqual(['createTopic video.events'])
  expect(await admin.getTopic('video.events')).toMatchObject({ retentionSeconds: 604_800 })
})

test('the plan shows what is kept meanwhile, and what a broken-off run has left to do', async () => {
  const plain = { ...desired, grants: [] }
  expect(planText(await planProvision(admin, plain)).split('\n')).toEqual([
    '+ topic video.events.catalog.dead (keeps everything until its subscriptions are there)',
    '+ topic video.events (keeps everything until its subscriptions are there)',
    '+ subscription video.events.catalog (from the beginning of its topic)',
    '    retentionSeconds: 2678399 -> 604800',
    '+ subscription video.events.catalog.dead.catalog (from the beginning of its topic)',
    '    retentionSeconds: 2678399 -> 2678400',
    '~ topic video.events.catalog.dead',
    '    retentionSeconds: 2678399 -> 0',
    '~ topic video.events',
    '    retentionSeconds: 2678399 -> 604800',
  ])
  const broken = watched((step) => {
    if (step === `createSubscription ${name}`) throw new Error('broken off')
  })
  await expect(applyProvision(broken, await planProvision(broken, plain))).rejects.toThrow('broken off')
  expect(planText(await planProvision(admin, plain)).split('\n')).toEqual([
    '~ subscription video.events.catalog (from the beginning of its topic)',
    '    retentionSeconds: 2678399 -> 604800',
    '+ subscription video.events.catalog.dead.catalog (from the beginning of its topic)',
    '    retentionSeconds: 2678399 -> 2678400',
    '~ topic video.events.catalog.dead',
    '    retentionSeconds: 2678399 -> 0',
    '~ topic video.events',
    '    retentionSeconds: 2678399 -> 604800',
  ])
})
