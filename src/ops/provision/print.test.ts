import { expect, test } from 'vitest'
import { desiredResources, type ProvisionOptions } from './desired.ts'
import { gcloudText, terraformText } from './print.ts'

const stream = { topic: 'video.events', ordering: 'aggregate' } as const
const desired = desiredResources({
  streams: [stream],
  consumers: [{ name: 'catalog', streams: [stream], subscribers: ['serviceAccount:catalog@shop.iam.gserviceaccount.com'] }],
  projectNumber: '123456',
  schemas: {
    'video.events': { name: 'video', type: 'AVRO', encoding: 'JSON', definition: '{"type":"record","doc":"it\'s ${x}"}' },
  },
})

test('the gcloud commands make what the plan would', () => {
  expect(gcloudText(desired, 'shop').split('\n')).toEqual([
    `gcloud pubsub schemas create video --type=avro --definition='{"type":"record","doc":"it'\\''s \${x}"}' --project=shop`,
    'gcloud pubsub topics create video.events.catalog.dead --project=shop',
    'gcloud pubsub topics create video.events --message-retention-duration=604800s --schema=video --message-encoding=json --project=shop',
    'gcloud pubsub subscriptions create video.events.catalog --topic=video.events --ack-deadline=15 --message-retention-duration=604800s --retain-acked-messages --enable-message-ordering --expiration-period=never --min-retry-delay=1s --max-retry-delay=60s --dead-letter-topic=video.events.catalog.dead --max-delivery-attempts=100 --project=shop',
    'gcloud pubsub subscriptions create video.events.catalog.dead.catalog --topic=video.events.catalog.dead --ack-deadline=15 --message-retention-duration=2678400s --enable-message-ordering --expiration-period=never --min-retry-delay=1s --max-retry-delay=60s --project=shop',
    'gcloud pubsub topics add-iam-policy-binding video.events.catalog.dead --role=roles/pubsub.publisher --member=serviceAccount:service-123456@gcp-sa-pubsub.iam.gserviceaccount.com --project=shop',
    'gcloud pubsub subscriptions add-iam-policy-binding video.events.catalog --role=roles/pubsub.subscriber --member=serviceAccount:service-123456@gcp-sa-pubsub.iam.gserviceaccount.com --project=shop',
    'gcloud pubsub subscriptions add-iam-policy-binding video.events.catalog --role=roles/pubsub.subscriber --member=serviceAccount:catalog@shop.iam.gserviceaccount.com --project=shop',
    'gcloud pubsub subscriptions add-iam-policy-binding video.events.catalog.dead.catalog --role=roles/pubsub.subscriber --member=serviceAccount:catalog@shop.iam.gserviceaccount.com --project=shop',
  ])
})

test('the Terraform names every resource once, and escapes what Terraform would read as its own', () => {
  const text = terraformText(desired, 'shop')
  const names = [...text.matchAll(/^resource "(\w+)" "(\w+)" \{$/gm)].map(([, type, name]) => `${type}.${name}`)
  expect(names).toHaveLength(9)
  expect(new Set(names).size).toBe(9)
  expect(text).toContain('$${x}')
  expect(text).toContain('dead_letter_topic     = google_pubsub_topic.video_events_catalog_dead.id')
  expect(text).toContain('topic                        = google_pubsub_topic.video_events.id')
  expect(text).toContain('subscription = google_pubsub_subscription.video_events_catalog.name')
  expect(text).toContain('  name                       = "video.events"\n  message_retention_duration = "604800s"\n')
  expect(text).toContain('  expiration_policy {\n    ttl = ""\n  }')
})

test('with Terraform nobody may publish to a topic before all its subscriptions are there', () => {
  const consumers = ['catalog', 'search'].map((name) => ({ name, streams: [stream] }))
  const text = terraformText(desiredResources({ streams: [stream], consumers, publishers: ['user:ada@example.com'] }), 'shop')
  expect(text.split('\n\n').at(-1)).toBe(
    [
      'resource "google_pubsub_topic_iam_member" "video_events_roles_pubsub_publisher_user_ada_example_com" {',
      '  project    = "shop"',
      '  topic      = google_pubsub_topic.video_events.name',
      '  role       = "roles/pubsub.publisher"',
      '  member     = "user:ada@example.com"',
      '  depends_on = [google_pubsub_subscription.video_events_catalog, google_pubsub_subscription.video_events_search]',
      '}',
    ].join('\n'),
  )
  const alone = terraformText(desiredResources({ streams: [stream], publishers: ['user:ada@example.com'] }), 'shop')
  expect(alone).not.toContain('depends_on')
})

test('the topic of another service is named, because Terraform does not make it here', () => {
  const reader = desiredResources({ consumers: [{ name: 'catalog', streams: [stream] }] })
  expect(terraformText(reader, 'shop')).toContain('topic                        = "projects/shop/topics/video.events"')
})

test('streams that share a topic share the subscription of a consumer, ordered if one of them needs it', () => {
  const accounts = { topic: 'bank.events', ordering: 'aggregate' } as const
  const rates = { topic: 'bank.events', ordering: 'version' } as const
  const consumers = [{ name: 'ledger', streams: [rates, accounts, stream], subscribers: ['user:ada@example.com'] }]
  const shared = desiredResources({ streams: [rates, accounts, stream], consumers, projectNumber: '1' })
  expect(shared.topics.map(({ name }) => name)).toEqual([
    'bank.events.ledger.dead',
    'video.events.ledger.dead',
    'bank.events',
    'video.events',
  ])
  expect(shared.subscriptions.map(({ name, isOrdered }) => `${name} ${isOrdered}`)).toEqual([
    'bank.events.ledger true',
    'bank.events.ledger.dead.ledger true',
    'video.events.ledger true',
    'video.events.ledger.dead.ledger true',
  ])
  const names = [...terraformText(shared, 'shop').matchAll(/^resource "(\w+)" "(\w+)" \{$/gm)].map(([line]) => line)
  expect(new Set(names).size).toBe(names.length)
  const unordered = desiredResources({ consumers: [{ name: 'ledger', streams: [rates] }] })
  expect(unordered.subscriptions.map(({ isOrdered }) => isOrdered)).toEqual([false, false])
})

test.each([
  ['retentionSeconds', 599],
  ['topicRetentionSeconds', 599],
  ['topicRetentionSeconds', 2_678_401],
  ['topicRetentionSeconds', Number.NaN],
  ['ackDeadlineSeconds', 601],
  ['maxAttempts', 4],
])('refuses a %s that Pub/Sub would refuse', (option, value) => {
  expect(() => desiredResources({ [option]: value })).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }) as Error)
})

test('what a killed consumer held is free again after 15 s, with exactly-once delivery after 60 s, or as it is said', () => {
  const consumers = [
    { name: 'catalog', streams: [stream] },
    { name: 'billing', streams: [stream], exactlyOnce: true },
  ]
  const deadlines = (given: ProvisionOptions): unknown =>
    desiredResources({ consumers, ...given }).subscriptions.map(({ ackDeadlineSeconds }) => ackDeadlineSeconds)
  expect(deadlines({})).toEqual([15, 15, 60, 60])
  expect(deadlines({ ackDeadlineSeconds: 30 })).toEqual([30, 30, 30, 30])
})

test('topics of streams keep as long as subscriptions, or as it is said; those of dead letters keep nothing', () => {
  const consumers = [{ name: 'catalog', streams: [stream] }]
  const kept = (given: ProvisionOptions): unknown =>
    desiredResources({ streams: [stream], consumers, ...given }).topics.map(({ retentionSeconds }) => retentionSeconds)
  expect(kept({})).toEqual([0, 604_800])
  expect(kept({ retentionSeconds: 3_600 })).toEqual([0, 3_600])
  expect(kept({ retentionSeconds: 3_600, topicRetentionSeconds: 86_400 })).toEqual([0, 86_400])
  expect(kept({ topicRetentionSeconds: 0 })).toEqual([0, 0])
  const none = desiredResources({ streams: [stream], topicRetentionSeconds: 0 })
  expect(terraformText(none, 'shop') + gcloudText(none, 'shop')).not.toMatch(/retention/)
})

test('a retention that marks what is not finished cannot be asked for', () => {
  for (const name of ['retentionSeconds', 'topicRetentionSeconds', 'deadLetterRetentionSeconds']) {
    expect(() => desiredResources({ [name]: 2_678_399 })).toThrow(new RegExp(`${name}: 2678399 marks what`))
    expect(desiredResources({ [name]: 2_678_400 })).toMatchObject({ topics: [] })
  }
})
