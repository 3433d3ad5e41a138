/** A server that is killed in the middle of its work and started again has lost nothing that it had confirmed. */
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { platform, tmpdir } from 'node:os'
import { join } from 'node:path'
import { v1 } from '@google-cloud/pubsub'
import { credentials } from '@grpc/grpc-js'
import { expect, test } from 'vitest'
import { eventually } from '../../../src/testing/kit/eventually.ts'
import { startChild } from '../../../src/testing/process/child.ts'
import type { Child } from '../../../src/testing/process/child.ts'

const topic = 'projects/crash/topics/orders'
const subscription = 'projects/crash/subscriptions/orders'
const kills = 5

interface Life {
  readonly child: Child
  readonly publisher: v1.PublisherClient
  readonly subscriber: v1.SubscriberClient
}

async function start(dataDir: string): Promise<Life> {
  // A small log is rewritten often, so that kills hit rewriting too.
  const child = startChild(new URL('server-process.ts', import.meta.url), {
    args: [JSON.stringify({ dataDir, compactBytes: 300_000 })],
  })
  const { port } = await child.message<{ port: number }>()
  const options = { servicePath: '127.0.0.1', port, sslCreds: credentials.createInsecure(), projectId: 'crash' }
  return { child, publisher: new v1.PublisherClient(options), subscriber: new v1.SubscriberClient(options) }
}

async function end({ child, publisher, subscriber }: Life): Promise<void> {
  await child.kill()
  await Promise.all([publisher.close(), subscriber.close()])
}

/** Only one attempt: a retry would hide which call was confirmed. A killed server ends it at once; the time is for one that stands still. */
const once = { timeout: 60_000, retry: { retryCodes: [], backoffSettings: {} } } as never

test('nothing confirmed is lost and nothing acknowledged comes back, however often the server is killed', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'pubsub-crash-'))
  const published = new Set<string>()
  const acked = new Set<string>()
  /** An acknowledgement that was sent may count although its answer got lost. */
  const ackSent = new Set<string>()
  const left = new Set<string>()
  let life = await start(dataDir)
  try {
    await life.publisher.createTopic({ name: topic })
    await life.subscriber.createSubscription({
      name: subscription,
      topic,
      enableExactlyOnceDelivery: true,
      ackDeadlineSeconds: 600,
    })

    for (let kill = 0; kill < kills; kill += 1) {
      const { publisher, subscriber, child } = life
      let isAlive = true
      const publishing = async (): Promise<void> => {
        const messages = Array.from({ length: 50 }, () => ({ data: Buffer.alloc(200, 1) }))
        while (isAlive) {
          const [{ messageIds }] = await publisher.publish({ topic, messages }, once)
          for (const id of messageIds ?? []) published.add(id)
        }
      }
      const acknowledging = async (): Promise<void> => {
        while (isAlive) {
          const [{ receivedMessages }] = await subscriber.pull({ subscription, maxMessages: 100, returnImmediately: true }, once)
          const some = (receivedMessages ?? []).filter((_, index) => index % 3 !== 0)
          if (some.length === 0) continue
          for (const { message } of some) ackSent.add(message?.messageId ?? '')
          await subscriber.acknowledge({ subscription, ackIds: some.map(({ ackId }) => ackId ?? '') }, once)
          for (const { message } of some) acked.add(message?.messageId ?? '')
        }
      }
      const before = { published: published.size, acked: acked.size }
      const work = Promise.allSettled([publishing(), publishing(), acknowledging()])
      const isWellUnderWay = (): boolean => published.size > before.published + 2_000 && acked.size > before.acked + 200
      await eventually(isWellUnderWay, { timeoutMs: 120_000 })
      await child.kill()
      isAlive = false
      await work
      await end(life)
      life = await start(dataDir)
    }

    for (;;) {
      const [{ receivedMessages }] = await life.subscriber.pull({ subscription, maxMessages: 1000, returnImmediately: true })
      if ((receivedMessages ?? []).length === 0) break
      for (const { message } of receivedMessages ?? []) left.add(message?.messageId ?? '')
    }
  } finally {
    await end(life)
    await rm(dataDir, { recursive: true })
  }

  expect([...published].filter((id) => !ackSent.has(id) && !left.has(id))).toEqual([])
  expect([...acked].filter((id) => left.has(id))).toEqual([])
  expect(published.size).toBeGreaterThan(2_000 * kills)
}, 900_000)

test.runIf(platform() === 'linux')('a server that was killed leaves no file outside of its folder, and no lock', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pubsub-crash-'))
  const TMPDIR = join(folder, 'tmp')
  await mkdir(TMPDIR)
  for (let life = 0; life < 2; life += 1) {
    await using child = startChild(new URL('server-process.ts', import.meta.url), {
      args: [JSON.stringify({ dataDir: join(folder, 'data') })],
      env: { TMPDIR },
    })
    expect(await child.message()).toEqual({ port: expect.any(Number) })
  }
  expect(await readdir(TMPDIR)).toEqual([])
  await rm(folder, { recursive: true })
})
