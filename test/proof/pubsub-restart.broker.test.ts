import { expect, test } from 'vitest'
import { startPubsubServer } from 'waybill-pubsub-server'
import { startChild, type Child } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createPubsubAdmin } from '../../src/transport/pubsub/admin/admin.ts'
import { pubsub } from '../../src/transport/pubsub/pubsub.ts'

interface Report {
  readonly seen?: readonly (readonly [string, number | undefined])[]
  readonly error?: string
}

/** By the clock on the wall, and longer than a busy machine stands still: a lease that ends in the hand of a living process redelivers. */
const leaseMs = 30_000
const patience = { timeoutMs: 180_000 }
/** How far the load is ahead of the consumers at most: the rest after it has to be handed over in time. */
const mostAhead = 5_000

async function openBroker() {
  const server = await startPubsubServer()
  const admin = createPubsubAdmin({ projectId: 'restart', emulatorHost: server.emulatorHost })
  for (const name of ['video.events', 'video.dead']) await admin.createTopic({ name, retentionSeconds: 0, schema: undefined })
  await admin.createSubscription({
    name: 'video.events.catalog',
    topic: 'video.events',
    ackDeadlineSeconds: leaseMs / 1_000,
    retentionSeconds: 86_400,
    isRetainingAcked: false,
    isOrdered: true,
    isExactlyOnce: false,
    filter: undefined,
    retry: undefined,
    // Only with a dead-letter policy does Pub/Sub count deliveries.
    deadLetter: { topic: 'video.dead', maxAttempts: 100 },
    expiresAfterSeconds: 0,
  })
  await admin.close()
  return server
}

test('a rolling restart under load redelivers next to nothing, and attempts rise only where a process was killed', async () => {
  const server = await openBroker()
  const transport = pubsub({ projectId: 'restart', emulatorHost: server.emulatorHost, publishTimeoutMs: 60_000 })
  const children: Child[] = []
  const deliveries: (readonly [string, number | undefined, Child])[] = []
  const errors: string[] = []
  const start = async (): Promise<Child> => {
    const child = startChild(new URL('../e2e/pubsub-consumer.ts', import.meta.url), {
      args: [server.emulatorHost, String(leaseMs)],
    })
    children.push(child)
    void child
      .message<Report>(({ seen, error }) => {
        for (const [name, attempt] of seen ?? []) deliveries.push([name, attempt, child])
        if (error !== undefined) errors.push(error)
        return false
      })
      .catch(() => undefined)
    await child.message<{ isReady?: boolean }>(({ isReady }) => isReady === true)
    return child
  }
  let published = 0
  let isPublishing = true
  const publishing = (async () => {
    while (isPublishing) {
      const batch = Array.from({ length: 100 }, (_, i) => ({
        topic: 'video.events',
        orderingKey: `k${(published + i) % 50}`,
        attributes: { name: `m${published + i}` },
        body: Buffer.from('x'),
      }))
      const outcomes = await transport.publish(batch, { signal: AbortSignal.timeout(60_000), maySend: () => true })
      expect(outcomes.every(({ status }) => status === 'confirmed')).toBe(true)
      published += batch.length
      await eventually(() => !isPublishing || published - deliveries.length < mostAhead, patience)
    }
  })()
  const more = (count: number): Promise<unknown> => {
    const goal = deliveries.length + count
    return eventually(() => deliveries.length >= goal, patience)
  }
  try {
    const generation = [await start(), await start()]
    await more(2_000)
    for (let restart = 0; restart < 4; restart += 1) {
      const old = generation.shift() as Child
      generation.push(await start())
      await more(1_000)
      old.send('stop')
      expect(await old.exited).toEqual({ code: 0, signal: null })
      await more(1_000)
    }
    const gracefully = deliveries.slice()
    const redelivered = gracefully.length - new Set(gracefully.map(([name]) => name)).size
    expect(errors).toEqual([])
    expect(gracefully.length).toBeGreaterThanOrEqual(10_000)
    expect(redelivered / gracefully.length).toBeLessThanOrEqual(0.001)
    expect(gracefully.filter(([, attempt]) => attempt !== 1)).toEqual([])

    const victim = generation.shift() as Child
    await victim.kill()
    isPublishing = false
    await publishing
    await eventually(() => expect(new Set(deliveries.map(([name]) => name)).size).toBe(published), patience)
    await eventually(() => expect(server.stats().subscriptions[0]?.unackedMessages).toBe(0), patience)
    const again = deliveries.filter(([, attempt]) => (attempt ?? 0) > 1)
    // What comes back was in the hand of the killed process, at most its window, or follows such a message under its key.
    expect(again.length).toBeLessThanOrEqual(200)
  } finally {
    isPublishing = false
    await publishing.catch(() => undefined)
    await Promise.all(children.map((child) => child.kill()))
    await transport.close()
    await server.stop()
  }
}, 1_800_000)
