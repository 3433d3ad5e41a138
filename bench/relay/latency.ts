/**
 * How long an event waits while nothing else happens: from the end of its transaction until the broker has it.
 *
 * Woken in the same process, woken by a NOTIFY after the commit, or found by polling; beside a bare LISTEN/NOTIFY round trip.
 * Each sample is the median of events that come one by one, with pauses in which the relay falls idle. What the waiting
 * itself costs is measured as the share of a core that an idle, polling relay takes.
 */
import pg from 'pg'
import { state } from '../../src/core/event/event.ts'
import { run } from '../../src/core/service/lifetime.ts'
import { randomInt, seededRandom } from '../../src/core/service/random.ts'
import type { StandardSchema } from '../../src/core/encoding/standard-schema.ts'
import { stream } from '../../src/core/event/stream.ts'
import { notifyAfterCommit } from '../../src/outbox/wake-up/notify.ts'
import { createOutbox, type Outbox } from '../../src/outbox/outbox.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import type { RelayOptions } from '../../src/outbox/relay/relay-options.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { type Bench, defineBench } from '../harness.ts'
import { median } from '../statistics.ts'
import { openOutboxBench, type OutboxBench } from './outbox-bench.ts'

interface Context {
  readonly bench: OutboxBench
  readonly events: number
  next: number
}

const nothing: StandardSchema<null> = { '~standard': { version: 1, vendor: 'bench', validate: () => ({ value: null }) } }
const things = stream('thing', { topic: 'bench.events', events: { Happened: state(nothing) } })
const idleMs = 50

export const latencyBench: Bench = defineBench<Context>({
  name: 'latency',
  summary: 'milliseconds from commit to broker while idle',
  unit: 'ms, median (idle: share of a core)',
  setup: async ({ quick }) => ({ bench: await openOutboxBench(), events: quick ? 5 : 30, next: 0 }),
  close: ({ bench }) => bench.close(),
  contenders: {
    'bare LISTEN/NOTIFY': async (context) => await roundTrip(context),
    nudge: async (context) => await whileRelaying(context, { outbox: context.bench.outbox }, () => waits(context)),
    'NOTIFY after commit': async (context) => {
      const notifying = notifyAfterCommit({ db: context.bench.db, outbox: context.bench.outbox, intervalMs: 1 })
      try {
        return await whileRelaying(context, { outbox: createOutbox(), listen: context.bench.url }, () => waits(context))
      } finally {
        await notifying.stop()
      }
    },
    polling: async (context) => await whileRelaying(context, { outbox: createOutbox() }, () => waits(context)),
    'idle polling': async (context) =>
      await whileRelaying(context, { outbox: createOutbox() }, async () => {
        const before = process.cpuUsage()
        const startedAt = performance.now()
        await pause(1_000)
        const { user, system } = process.cpuUsage(before)
        return (user + system) / 1_000 / (performance.now() - startedAt)
      }),
  },
  bars: [
    {
      name: 'nudge ÷ LISTEN/NOTIFY',
      target: 3,
      direction: 'at-most',
      of: (sample) => sample('nudge') / sample('bare LISTEN/NOTIFY'),
    },
    {
      name: 'NOTIFY ÷ LISTEN/NOTIFY',
      target: 3,
      direction: 'at-most',
      of: (sample) => sample('NOTIFY after commit') / sample('bare LISTEN/NOTIFY'),
    },
    { name: 'polling ÷ idle interval', target: 0.7, direction: 'at-most', of: (sample) => sample('polling') / idleMs },
    { name: 'share of a core while idle', target: 0.05, direction: 'at-most', of: (sample) => sample('idle polling') },
  ],
})

const arrivals = new Map<string, (atMs: number) => void>()
const random = seededRandom('latency')

/** Runs a relay whose broker tells when each event arrived. */
async function whileRelaying(
  { bench }: Context,
  options: { readonly outbox: Outbox } & Partial<RelayOptions>,
  work: () => Promise<number>,
): Promise<number> {
  const stop = new AbortController()
  const transport: RelayOptions['transport'] = {
    maxBytes: 10_000_000,
    publish: (messages) => {
      for (const { attributes } of messages) arrivals.get(attributes['event_id'] ?? '')?.(performance.now())
      return Promise.resolve(messages.map(() => ({ status: 'confirmed', messageId: '1' })))
    },
  }
  const running = run([createRelay({ db: bench.db, transport, idleMs, ...options })], { signal: stop.signal })
  try {
    await pause(500)
    return await work()
  } finally {
    stop.abort()
    await running
  }
}

async function waits(context: Context): Promise<number> {
  const { db, outbox } = context.bench
  const found: number[] = []
  for (let i = 0; i < context.events; i += 1) {
    await pause(randomInt(random, 60, 140))
    const id = crypto.randomUUID()
    const arrived = new Promise<number>((resolve) => arrivals.set(id, resolve))
    context.next += 1
    await transaction(db, (tx) => outbox.add(tx, things.Happened, `t${context.next}`, null, { id }))
    const committedAt = performance.now()
    found.push(Math.max(0, (await arrived) - committedAt))
    arrivals.delete(id)
  }
  return median(found)
}

async function roundTrip({ bench, events }: Context): Promise<number> {
  const client = new pg.Client({ connectionString: bench.url })
  await client.connect()
  await client.query('listen bench')
  const found: number[] = []
  for (let i = 0; i < events; i += 1) {
    // As long as between two events of the others: a machine that has rested is slower to answer.
    await pause(randomInt(random, 60, 140))
    const heard = new Promise<void>((resolve) => client.once('notification', () => resolve()))
    const startedAt = performance.now()
    await bench.db.query('notify bench')
    await heard
    found.push(performance.now() - startedAt)
  }
  await client.end()
  return median(found)
}

async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms))
}
