/**
 * Consumer processes that join, leave, are frozen beyond their session and killed, under load, on a real broker. A group's
 * offsets are watched from outside all the while, and at the end every effect is counted.
 */
import { randomInt, seededRandom } from '../../src/core/service/random.ts'
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import type { Child } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { connectKafka } from '../../src/transport/kafka/client/connect.ts'
import { createKafkaAdmin, type KafkaAdmin } from '../../src/transport/kafka/admin.ts'
import type { KafkaOptions } from '../../src/transport/kafka/kafka-options.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import type { OutgoingMessage, Transport } from '../../src/transport/port/transport.ts'
import { deposited, type ConsumerFixture } from '../setup/consumer-fixture.ts'
import { watchChildren } from '../setup/watched-children.ts'
import { judgeLooks, observeOffsets } from './offset-observer.ts'
import { eventsByPlace, readTopic } from './read-topic.ts'

/** What a child is told: numbers and names only. */
export interface StormConsumerSettings {
  readonly url: string
  readonly schema: string
  readonly brokers: readonly string[]
  readonly topic: string
  readonly kafka: Pick<
    KafkaOptions,
    'sessionTimeoutMs' | 'heartbeatMs' | 'drainTimeoutMs' | 'rebalanceTimeoutMs' | 'fetchMaxWaitMs'
  >
  readonly consumer: Partial<ConsumerOptions>
}

export interface StormOptions {
  readonly fixture: ConsumerFixture
  readonly url: string
  readonly brokers: readonly string[]
  /** A topic that nobody has used. */
  readonly topic: string
  readonly seed: number
  readonly events: number
  readonly incidents: number
  /** @default {} */
  readonly consumer?: Partial<ConsumerOptions>
}

export interface StormReport {
  readonly violations: readonly string[]
  readonly events: number
  readonly effects: number
  readonly looks: number
  /** Consumer processes that were started. */
  readonly processes: number
  readonly incidents: Readonly<Record<Incident, number>>
}

type Incident = 'join' | 'leave' | 'freeze' | 'kill'

const incidentKinds: readonly Incident[] = ['join', 'freeze', 'kill', 'leave']
const aggregates = 24
const patience = { timeoutMs: 300_000, intervalMs: 50 }
/** Short, but not so short that a busy machine alone ends a session. */
const times: StormConsumerSettings['kafka'] = {
  sessionTimeoutMs: 3_000,
  heartbeatMs: 300,
  drainTimeoutMs: 5_000,
  rebalanceTimeoutMs: 10_000,
  fetchMaxWaitMs: 100,
}

/** One that is frozen in a transaction keeps its locks until the server ends that: handler time and five seconds, in place of a minute. */
const handlerTimeoutMs = 10_000

export async function rebalanceStorm(options: StormOptions): Promise<StormReport> {
  const { fixture, url, brokers, topic, seed, events, incidents, consumer = {} } = options
  const admin = createKafkaAdmin({ brokers })
  const publisher = kafka({ brokers, minInsyncReplicas: 1 })
  const processed = (): Promise<number> => fixture.count('effect')
  const observer = observeOffsets({
    admin,
    topic,
    group: `${topic}.ledger`,
    readProcessed: async () =>
      (await fixture.query<{ id: string }>('select event_id::text as id from $schema.effect')).map(({ id }) => id),
  })
  const told = { handlerTimeoutMs, ...consumer }
  const settings: StormConsumerSettings = { url, schema: fixture.schema, brokers, topic, kafka: times, consumer: told }
  const children = createChildren(settings)
  await Promise.all([children.start(), children.start(), children.start()])
  const sent = sendFacts(publisher, { topic, seed, events, processed })
  const counts = await happen({ incidents, events, seed, children, processed })
  const facts = await sent
  await eventually(async () => (await processed()) >= events, patience)
  await eventually(async () => isCaughtUp(admin, topic), patience)
  await children.stop()
  await observer.stop()
  const client = connectKafka({ brokers })
  const log = eventsByPlace(await eventually(() => readTopic(client, topic), patience))
  await client.close()
  const effects = await fixture.query<{ id: string; aggregate: string; version: number }>(
    'select event_id::text as id, aggregate_id as aggregate, version::int from $schema.effect order by at',
  )
  await publisher.close()
  await admin.close()
  return {
    violations: [...judgeLooks(observer, log), ...judgeEffects(facts, effects), ...children.violations],
    events: facts.length,
    effects: effects.length,
    looks: observer.looks.length,
    processes: children.started(),
    incidents: counts,
  }
}

interface Children {
  /** The ends of processes that nobody asked for. */
  readonly violations: readonly string[]
  start(): Promise<void>
  at(place: number): Child
  /** Ends one without a word. */
  kill(place: number): Promise<void>
  /** Tells one to stop. */
  leave(place: number): Promise<void>
  count(): number
  started(): number
  /** The end of what each wrote to its standard error. */
  errors(): string
  stop(): Promise<void>
}

function createChildren(settings: StormConsumerSettings): Children {
  const children = watchChildren()
  const running: Child[] = []
  const take = (place: number): Child => running.splice(place % running.length, 1)[0] as Child
  let started = 0
  return {
    violations: children.violations,
    start: async () => {
      started += 1
      const child = children.start(new URL('storm-consumer.ts', import.meta.url), { args: [JSON.stringify(settings)] })
      running.push(child)
      await child.message<{ started?: boolean }>((message) => message.started === true)
    },
    at: (place) => running[place % running.length] as Child,
    kill: (place) => children.kill(take(place)),
    leave: (place) => children.stop(take(place)),
    count: () => running.length,
    started: () => started,
    errors: () => running.map(({ stderr }) => stderr.slice(-500)).join(' | '),
    stop: async () => void (await Promise.all(running.map(children.stop))),
  }
}

interface Happening {
  readonly incidents: number
  readonly events: number
  readonly seed: number
  readonly children: Children
  readonly processed: () => Promise<number>
}

/** Incidents at even steps of progress. */
async function happen({ incidents, events, seed, children, processed }: Happening): Promise<StormReport['incidents']> {
  const random = seededRandom(`storm ${seed}`)
  const counts = { join: 0, leave: 0, freeze: 0, kill: 0 }
  const acts: Readonly<Record<Incident, (place: number) => Promise<void>>> = {
    join: () => children.start(),
    leave: async (place) => {
      await children.leave(place)
      if (children.count() < 2) await children.start()
    },
    freeze: async (place) => {
      const child = children.at(place)
      const beyondSession = performance.now() + 2 * (times.sessionTimeoutMs ?? 0)
      child.freeze()
      // A session is a time, so it has to pass; then the others have its partitions, and go on.
      await eventually(() => performance.now() > beyondSession, patience)
      const before = await processed()
      await eventually(async () => {
        const now = await processed()
        if (now <= before && now < events) throw new Error(`${now} of ${events} processed, and no more: ${children.errors()}`)
      }, patience)
      child.thaw()
    },
    kill: async (place) => {
      await children.kill(place)
      await children.start()
    },
  }
  for (let nth = 0; nth < incidents; nth += 1) {
    await eventually(async () => (await processed()) >= (events * nth) / (incidents + 1), patience)
    const kind = incidentKinds[nth % incidentKinds.length] as Incident
    await acts[kind](randomInt(random, 0, 100))
    counts[kind] += 1
  }
  return counts
}

interface SendOptions {
  readonly topic: string
  readonly seed: number
  readonly events: number
  readonly processed: () => Promise<number>
}

/** Facts in batches, close ahead of the consumers, so that incidents fall among live traffic. */
async function sendFacts(
  publisher: Transport,
  { topic, seed, events, processed }: SendOptions,
): Promise<readonly OutgoingMessage[]> {
  const random = seededRandom(`facts ${seed}`)
  const versions = new Map<string, number>()
  const sent: OutgoingMessage[] = []
  while (sent.length < events) {
    const batch = Array.from({ length: Math.min(25, events - sent.length) }, () => {
      const id = `a${randomInt(random, 0, aggregates - 1)}`
      const version = (versions.get(id) ?? 0) + 1
      versions.set(id, version)
      return { ...deposited(id, version, version), topic }
    })
    let left: readonly OutgoingMessage[] = batch
    await eventually(async () => {
      const outcomes = await publisher.publish(left, { signal: AbortSignal.timeout(10_000), maySend: () => true })
      left = left.filter((_, i) => outcomes[i]?.status !== 'confirmed')
      return left.length === 0
    }, patience)
    sent.push(...batch)
    await eventually(async () => sent.length - (await processed()) < events / 4, patience)
  }
  return sent
}

async function isCaughtUp(admin: KafkaAdmin, topic: string): Promise<boolean> {
  const [committed, ends] = await Promise.all([admin.committedOffsets(topic, `${topic}.ledger`), admin.endOffsets(topic)])
  return [...ends].every(([partition, end]) => end === 0n || committed.get(partition) === end)
}

function judgeEffects(
  facts: readonly OutgoingMessage[],
  effects: readonly { readonly id: string; readonly aggregate: string; readonly version: number }[],
): readonly string[] {
  const found: string[] = []
  const counts = new Map<string, number>()
  const versions = new Map<string, number>()
  for (const { id, aggregate, version } of effects) {
    counts.set(id, (counts.get(id) ?? 0) + 1)
    const last = versions.get(aggregate) ?? 0
    if (version !== last + 1) found.push(`${aggregate} ${version} after ${last}`)
    versions.set(aggregate, version)
  }
  for (const { attributes } of facts) {
    const count = counts.get(attributes['event_id'] ?? '') ?? 0
    if (count !== 1) found.push(`${attributes['aggregate_id']} ${attributes['version']} has ${count} effects`)
  }
  if (counts.size !== facts.length) found.push(`${counts.size} events have effects, ${facts.length} were sent`)
  return found
}
