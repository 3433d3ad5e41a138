import { PubSub } from '@google-cloud/pubsub'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { createPubsubAdmin, type PubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import { doctorPubsub, type PubsubProblem } from '../doctor/pubsub.ts'
import { desiredResources, serviceAgent, type ProvisionOptions } from './desired.ts'
import { planText } from './print.ts'
import { applyProvision, planProvision } from './provision.ts'

const videos = { topic: 'video.events', ordering: 'aggregate' } as const
const options: ProvisionOptions = {
  streams: [videos],
  consumers: [{ name: 'catalog', streams: [videos], subscribers: ['serviceAccount:catalog@shop.iam.gserviceaccount.com'] }],
  publishers: ['serviceAccount:video@shop.iam.gserviceaccount.com'],
  projectNumber: '123456',
  schemas: {
    'video.events': {
      name: 'video',
      type: 'AVRO',
      encoding: 'JSON',
      definition: JSON.stringify({ type: 'record', name: 'Video', fields: [{ name: 'title', type: 'string' }] }),
    },
  },
}
const desired = desiredResources(options)
const name = 'video.events.catalog'

let server: PubsubServer
let admin: PubsubAdmin
let client: PubSub
let projectId = ''
let projects = 0

beforeAll(async () => {
  server = await startPubsubServer()
})

beforeEach(async () => {
  await admin?.close()
  await client?.close()
  projects += 1
  projectId = `shop-${projects}`
  admin = createPubsubAdmin({ projectId, emulatorHost: server.emulatorHost })
  client = new PubSub({ projectId, apiEndpoint: server.emulatorHost })
})

afterAll(async () => {
  await admin.close()
  await client.close()
  await server.stop()
})

describe('provisioning', () => {
  test('a fresh project needs everything; once applied, nothing', async () => {
    const plan = await planProvision(admin, desired)
    expect(plan.changes.map(({ kind, name: each, action }) => `${action} ${kind} ${each}`)).toEqual([
      'create schema video',
      'create topic video.events.catalog.dead',
      'create topic video.events',
      'create subscription video.events.catalog',
      'create subscription video.events.catalog.dead.catalog',
      'update topic video.events.catalog.dead',
      'update topic video.events',
      'grant grant video.events',
      'grant grant video.events.catalog.dead',
      'grant grant video.events.catalog',
      'grant grant video.events.catalog',
      'grant grant video.events.catalog.dead.catalog',
    ])
    const told: string[] = []
    await applyProvision(admin, plan, (change) => told.push(change.name))
    expect(told).toHaveLength(12)
    expect((await planProvision(admin, desired)).changes).toEqual([])
    expect(planText(await planProvision(admin, desired))).toBe('Nothing to change.')
  })

  test('a consumer of two streams on one topic gets one subscription; once applied, nothing is left to do', async () => {
    const popularity = { topic: 'video.events', ordering: 'version' } as const
    const shared = desiredResources({ ...options, consumers: [{ name: 'catalog', streams: [popularity, videos] }] })
    await applyProvision(admin, await planProvision(admin, shared))
    expect((await planProvision(admin, shared)).changes).toEqual([])
    expect(await admin.getSubscription(name)).toMatchObject({ isOrdered: true })
  })

  test("what it makes is what Google's own client sees", async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    const [found] = await client.subscription(name).getMetadata()
    expect(found).toMatchObject({
      topic: `projects/${projectId}/topics/video.events`,
      ackDeadlineSeconds: 15,
      enableMessageOrdering: true,
      retainAckedMessages: true,
      messageRetentionDuration: { seconds: '604800' },
      retryPolicy: { minimumBackoff: { seconds: '1' }, maximumBackoff: { seconds: '60' } },
      deadLetterPolicy: { deadLetterTopic: `projects/${projectId}/topics/${name}.dead`, maxDeliveryAttempts: 100 },
    })
    expect(found.expirationPolicy?.ttl ?? null).toBeNull()
    const [policy] = await client.topic(`${name}.dead`).iam.getPolicy()
    expect(policy.bindings).toEqual([
      expect.objectContaining({ role: 'roles/pubsub.publisher', members: [serviceAgent('123456')] }),
    ])
  })

  test('shows what has drifted, field by field, and puts it right', async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    await client.subscription(name).setMetadata({
      retryPolicy: { minimumBackoff: { seconds: 10 }, maximumBackoff: { seconds: 60 } },
      ackDeadlineSeconds: 30,
    })
    const drifted = await planProvision(admin, desired)
    expect(planText(drifted)).toBe(
      [
        '~ subscription video.events.catalog',
        '    ackDeadlineSeconds: 30 -> 15',
        '    retry: {"minSeconds":10,"maxSeconds":60} -> {"minSeconds":1,"maxSeconds":60}',
      ].join('\n'),
    )
    await applyProvision(admin, drifted)
    expect((await planProvision(admin, desired)).changes).toEqual([])
  })

  test('a topic is brought to the retention that is asked for, and left alone once it has it', async () => {
    const keepingNone = desiredResources({ ...options, topicRetentionSeconds: 0 })
    await applyProvision(admin, await planProvision(admin, keepingNone))
    expect(planText(await planProvision(admin, desired))).toBe('~ topic video.events\n    retentionSeconds: 0 -> 604800')
    await applyProvision(admin, await planProvision(admin, desired))
    const [found] = await client.topic('video.events').getMetadata()
    expect(found.messageRetentionDuration).toMatchObject({ seconds: '604800' })
    expect((await planProvision(admin, desired)).changes).toEqual([])
    await applyProvision(admin, await planProvision(admin, keepingNone))
    expect((await planProvision(admin, keepingNone)).changes).toEqual([])
    expect(await admin.getTopic('video.events')).toMatchObject({ retentionSeconds: 0 })
  })

  test('keeps the grants of others, and adds its own to them', async () => {
    await admin.createTopic({ name: 'video.events', retentionSeconds: 0, schema: undefined })
    const other = { kind: 'topic', name: 'video.events', role: 'roles/pubsub.publisher', member: 'user:ada@example.com' } as const
    await admin.grant(other)
    const plain = desiredResources({ ...options, schemas: {} })
    await applyProvision(admin, await planProvision(admin, plain))
    expect(await admin.grantsOn('topic', 'video.events')).toEqual(expect.arrayContaining([other, plain.grants[0]]))
  })

  test('a change of order is shown as one that cannot be made in place, and nothing is applied', async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    const unordered = { topic: 'video.events', ordering: 'version' } as const
    const other = desiredResources({ ...options, ackDeadlineSeconds: 20, consumers: [{ name: 'catalog', streams: [unordered] }] })
    const plan = await planProvision(admin, other)
    expect(planText(plan)).toContain('! subscription video.events.catalog (cannot be changed in place)')
    await expect(applyProvision(admin, plan)).rejects.toMatchObject({
      code: 'REFUSED',
      message: expect.stringMatching(
        /reaches nobody.* pause every stream of it \(waybill outbox pause --stream <type>\) or stop its relays.* drain .* delete .* provision --apply.* resume/,
      ),
    })
    expect(await admin.getSubscription(name)).toMatchObject({ ackDeadlineSeconds: 15, isOrdered: true })
  })

  test('a filter that somebody set is shown as one that cannot be removed in place', async () => {
    await admin.createTopic({ name: 'video.events', retentionSeconds: 0, schema: undefined })
    await client
      .topic('video.events')
      .createSubscription(name, { enableMessageOrdering: true, filter: 'attributes.type = "VideoAdded"' })
    const plan = planText(await planProvision(admin, desired))
    expect(plan).toContain('! subscription video.events.catalog (cannot be changed in place)')
    expect(plan).toContain('    filter: attributes.type = "VideoAdded" -> none')
  })

  test('a consumer that stops at what fails has no dead letters at Pub/Sub, and one that had them loses the policy', async () => {
    const stopping = desiredResources({ ...options, consumers: [{ name: 'catalog', streams: [videos], onPoison: 'stop' }] })
    expect(stopping.topics.map((each) => each.name)).toEqual(['video.events'])
    expect(stopping.subscriptions.map((each) => each.name)).toEqual([name])
    await applyProvision(admin, await planProvision(admin, desired))
    const findings = await doctorPubsub(admin, { desired: stopping })
    expect(findings.map(({ problem, resource }) => ({ problem, resource }))).toEqual([
      { problem: 'dead-letter-unwanted', resource: name },
    ])
    await applyProvision(admin, await planProvision(admin, stopping))
    expect((await planProvision(admin, stopping)).changes).toEqual([])
    expect(await admin.getSubscription(name)).toMatchObject({ deadLetter: undefined, isRetainingAcked: true })
    expect(await doctorPubsub(admin, { desired: stopping })).toEqual([])
  })

  test('a changed schema is committed as a new revision; white space is no change', async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    const withDefinition = (definition: string): ProvisionOptions => ({
      ...options,
      schemas: { 'video.events': { ...options.schemas!['video.events']!, definition } },
    })
    const spaced = JSON.stringify(JSON.parse(desired.schemas[0]!.definition), null, 4)
    expect((await planProvision(admin, desiredResources(withDefinition(spaced)))).changes).toEqual([])
    const fields = [
      { name: 'title', type: 'string' },
      { name: 'views', type: 'int', default: 0 },
    ]
    const changed = desiredResources(withDefinition(JSON.stringify({ type: 'record', name: 'Video', fields })))
    const plan = await planProvision(admin, changed)
    expect(plan.changes).toMatchObject([{ kind: 'schema', action: 'update', differences: [{ field: 'definition' }] }])
    await applyProvision(admin, plan)
    expect((await planProvision(admin, changed)).changes).toEqual([])
  })

  test('without the project number it says what is left out', () => {
    const { projectNumber: _number, ...rest } = options
    expect(desiredResources(rest).notes).toEqual([expect.stringContaining('projectNumber')])
  })
})

describe('the doctor', () => {
  const problems = async (replaySeconds?: number): Promise<readonly PubsubProblem[]> => {
    const findings = await doctorPubsub(admin, { desired, ...(replaySeconds === undefined ? {} : { replaySeconds }) })
    return findings.map(({ problem }) => problem)
  }
  const subscription = desired.subscriptions[0]!

  /** Everything provisioned, but this subscription made by somebody else. */
  async function provisionedWith(change: Partial<typeof subscription>): Promise<void> {
    const without = { ...desired, subscriptions: desired.subscriptions.filter((each) => each.name !== name), grants: [] }
    await applyProvision(admin, await planProvision(admin, without))
    await admin.createSubscription({ ...subscription, ...change })
    for (const grant of desired.grants) await admin.grant(grant)
  }

  test('finds nothing wrong with what was provisioned', async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    expect(await problems()).toEqual([])
  })

  test('finds everything missing in a fresh project', async () => {
    expect(new Set(await problems())).toEqual(new Set(['topic-missing', 'subscription-missing', 'grant-missing']))
  })

  test.each<[PubsubProblem, Partial<typeof subscription>]>([
    ['ordering-off', { isOrdered: false }],
    ['filtered', { filter: 'attributes.type = "VideoAdded"' }],
    ['retry-policy-missing', { retry: undefined }],
    ['retention-short', { retentionSeconds: 3_600 }],
    ['acked-not-retained', { isRetainingAcked: false }],
    ['expires', { expiresAfterSeconds: 2_678_400 }],
    ['dead-letter-missing', { deadLetter: undefined }],
  ])('finds %s', async (problem, change) => {
    await provisionedWith(change)
    expect(await problems()).toEqual([problem])
  })

  test('tells to let nothing be published while a subscription is made anew', async () => {
    await provisionedWith({ isOrdered: false })
    const [found] = await doctorPubsub(admin, { desired })
    expect(found?.text).toMatch(
      /ordering is off: .*let nothing be published to its topic.*delete what cannot be changed, run waybill provision --apply, and resume\.$/,
    )
  })

  test('finds retention shorter than the replay that is asked for', async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    expect(await problems(604_800)).toEqual([])
    expect(await problems(604_801)).toEqual(['retention-short'])
  })

  test('finds a topic that keeps less than a rebuild has to reach back, and nothing to say of one that keeps more', async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    const keeping = async (retentionSeconds: number): Promise<readonly string[]> => {
      await admin.updateTopic({ ...desired.topics[1]!, retentionSeconds }, ['retentionSeconds'])
      return (await doctorPubsub(admin, { desired })).map(({ text }) => text)
    }
    expect(await keeping(0)).toEqual([
      'video.events: the topic keeps messages for 0 s; a rebuild has to reach back 604800 s. Run: waybill provision --apply',
    ])
    expect(await keeping(604_801)).toEqual([])
  })

  test('finds a dead-letter topic that nobody is subscribed to', async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    await client.subscription('video.events.catalog.dead.catalog').delete()
    expect(await problems()).toEqual(expect.arrayContaining(['subscription-missing', 'dead-letter-unsubscribed']))
  })

  test('finds a dead-letter topic that is gone', async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    await client.topic('video.events.catalog.dead').delete()
    expect(await problems()).toEqual(expect.arrayContaining(['topic-missing', 'dead-letter-unreachable']))
  })

  test('finds a subscription that stayed behind when its topic was deleted and made again', async () => {
    await applyProvision(admin, await planProvision(admin, desired))
    await client.topic('video.events').delete()
    await client.createTopic({ name: 'video.events', messageRetentionDuration: { seconds: 604_800 } })
    for (const grant of desired.grants) await admin.grant(grant)
    const findings = await doctorPubsub(admin, { desired })
    expect(findings).toEqual([
      {
        problem: 'other-topic',
        resource: name,
        text: expect.stringMatching(
          /it reads from _deleted-topic_: nothing that is published to video\.events reaches it.*delete what cannot be changed/,
        ),
      },
    ])
  })

  test("finds a missing grant of Pub/Sub's own account", async () => {
    const without = { ...desired, grants: desired.grants.filter(({ member }) => member !== serviceAgent('123456')) }
    await applyProvision(admin, await planProvision(admin, without))
    expect(await problems()).toEqual(['grant-missing', 'grant-missing'])
  })
})
