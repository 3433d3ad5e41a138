/** What a restart of the local Pub/Sub server keeps: everything that somebody was told. */
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { startPubsubServer } from '../src/pubsub-server.ts'
import { data, openHarness } from './harness.ts'
import type { Harness } from './harness.ts'

let dataDir = ''
let h: Harness

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'pubsub-data-'))
  h = await openHarness({ dataDir })
})

afterEach(async () => {
  await h.close()
  await rm(dataDir, { recursive: true })
})

async function restart(options: object = {}): Promise<void> {
  await h.close()
  h = await openHarness({ dataDir, ...options })
}

test('unacknowledged messages, their order and their keys survive; acknowledged ones do not come back', async () => {
  const { topic, subscription } = await h.pair({ enableMessageOrdering: true })
  const ids = await h.publish(topic, ['1', '2', '3', '4'], 'key')
  const received = await h.pull(subscription)
  await h.ack(subscription, received.slice(0, 2))
  await restart()
  const [{ receivedMessages }] = await h.subscriber.pull({ subscription, maxMessages: 10, returnImmediately: true })
  expect(receivedMessages?.map(({ message }) => [message?.messageId, message?.orderingKey])).toEqual([
    [ids[2], 'key'],
    [ids[3], 'key'],
  ])
  await expect(h.ack(subscription, received.slice(2))).resolves.toBeUndefined()
  expect(h.server.stats().subscriptions[0]?.unackedMessages).toBe(2)
})

test('settings, snapshots, schemas, policies and kept messages survive, again and again', async () => {
  const definition = JSON.stringify({ type: 'record', name: 'R', fields: [{ name: 'a', type: 'string' }] })
  await h.schemas.createSchema({ parent: 'projects/compat', schemaId: 'kept', schema: { type: 'AVRO', definition } })
  const schema = 'projects/compat/schemas/kept'
  const topic = await h.topic({ messageRetentionDuration: { seconds: 3600 }, schemaSettings: { schema, encoding: 'JSON' } })
  const { subscription } = await h.pair({
    topic,
    labels: { a: 'b' },
    filter: 'attributes:googclient_schemaname',
    retainAckedMessages: true,
  })
  await h.publish(topic, ['{"a":"1"}'])
  const [snapshot] = await h.subscriber.createSnapshot({ name: 'projects/compat/snapshots/kept', subscription })
  await h.publish(topic, ['{"a":"2"}'])
  await h.ack(subscription, await h.pull(subscription))
  const bindings = [{ role: 'roles/pubsub.publisher', members: ['allUsers'] }]
  const [policy] = await h.publisher.setIamPolicy({ resource: topic, policy: { bindings } } as never)

  for (let round = 0; round < 2; round += 1) {
    await restart()
    expect((await h.subscriber.getSubscription({ subscription }))[0]).toMatchObject({ labels: { a: 'b' }, topic })
    expect((await h.publisher.getIamPolicy({ resource: topic } as never))[0]).toMatchObject({ bindings, etag: policy.etag })
    await expect(h.publish(topic, ['{"b":1}'])).rejects.toMatchObject({ code: 3 })
    expect(await h.pull(subscription)).toEqual([])
    await h.subscriber.seek({ subscription, snapshot: snapshot.name ?? '' })
    const received = await h.pull(subscription)
    expect(data(received)).toEqual(['{"a":"1"}', '{"a":"2"}'])
    await h.ack(subscription, received)
  }
})

test('what was deleted, detached or sought past stays so', async () => {
  const { topic, subscription: sought } = await h.pair()
  const { subscription: detached } = await h.pair({ topic })
  const { subscription: deleted } = await h.pair({ topic })
  await h.publish(topic, ['a'])
  await h.subscriber.seek({ subscription: sought, time: { seconds: Math.floor(h.clock.nowMs() / 1000) + 1 } })
  await h.publisher.detachSubscription({ subscription: detached })
  await h.subscriber.deleteSubscription({ subscription: deleted })
  await h.publisher.deleteTopic({ topic })
  await restart()
  expect(await h.pull(sought)).toEqual([])
  await expect(h.pull(detached)).rejects.toMatchObject({ code: 9 })
  await expect(h.pull(deleted)).rejects.toMatchObject({ code: 5 })
  await expect(h.publish(topic, ['b'])).rejects.toMatchObject({ code: 5 })
})

test('a dead letter and its settlement survive together', async () => {
  const { topic: deadLetterTopic, subscription: morgue } = await h.pair()
  const { topic, subscription } = await h.pair({ deadLetterPolicy: { deadLetterTopic, maxDeliveryAttempts: 5 } })
  await h.publish(topic, ['poison'])
  for (let attempt = 0; attempt < 5; attempt += 1) await h.nack(subscription, await h.pull(subscription))
  await restart()
  expect(await h.pull(subscription)).toEqual([])
  expect(data(await h.pull(morgue))).toEqual(['poison'])
})

test('a log that has outgrown its state is replaced by the state, under load, and nothing is lost', async () => {
  await restart({ compactBytes: 200_000 })
  const { topic, subscription } = await h.pair()
  const payload = 'x'.repeat(1_000)
  for (let round = 0; round < 20; round += 1) {
    await Promise.all(
      Array.from({ length: 5 }, () =>
        h.publish(
          topic,
          Array.from({ length: 20 }, () => payload),
        ),
      ),
    )
    const received = await h.pull(subscription)
    await h.ack(subscription, round === 19 ? received.slice(0, 60) : received)
  }
  const files = await readdir(dataDir)
  expect(files).toHaveLength(1)
  const { size } = await stat(join(dataDir, files[0] ?? ''))
  expect(size).toBeLessThan(1_000_000)
  await restart()
  expect(await h.pull(subscription)).toHaveLength(40)
})

test('a file left over from a rewriting that was interrupted is ignored and removed', async () => {
  const { topic, subscription } = await h.pair()
  await h.publish(topic, ['a'])
  await h.close()
  await writeFile(join(dataDir, 'pubsub-00000009.log.new'), 'torn')
  h = await openHarness({ dataDir })
  expect(data(await h.pull(subscription))).toEqual(['a'])
  expect(await readdir(dataDir)).toEqual(['pubsub-00000002.log'])
})

test('two servers cannot share a folder', async () => {
  await expect(startPubsubServer({ dataDir })).rejects.toMatchObject({ code: 'REFUSED' })
})
