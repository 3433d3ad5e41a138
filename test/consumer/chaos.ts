/**
 * A world in which everything that "at least once" allows happens to consumers: any order, copies, lost acks, handlers that
 * fail once, and instances that die between any two steps. At the end, what happened is compared with the owner's history.
 *
 * The product's own code runs on a real Postgres; only its ports are wrapped. Mutants wrap them a little more.
 */
import { createConsumer, type Consumer } from '../../src/consumer/consumer.ts'
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import type { ConsumedEvent } from '../../src/consumer/model/handler.ts'
import { randomInt, seededRandom, type Random } from '../../src/core/service/random.ts'
import type { Database, QueryResult, Tx } from '../../src/postgres/query/database.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { Delivery } from '../../src/transport/port/transport.ts'
import { ChaosBroker, Life } from './chaos-broker.ts'
import {
  factsOf,
  judge,
  step,
  streams,
  type History,
  type meters,
  type notes,
  type Setting,
  type wallets,
} from './chaos-history.ts'

export interface World {
  readonly seed: number
  readonly histories: readonly History[]
  readonly instances: number
  readonly batchSize: number
  /** After so many steps of its ports the n-th instance dies; the next one takes over. */
  readonly deaths: readonly number[]
}

export interface Mutation {
  readonly database?: (db: Database) => Database
  readonly delivery?: (delivery: Delivery) => Delivery
  readonly streams?: readonly (typeof notes | typeof wallets | typeof meters)[]
  readonly options?: Partial<ConsumerOptions>
  /** How long to wait for the end; a mutant may never reach it. */
  readonly patienceMs?: number
}

/** Said of a world in which messages were left when its time was over. */
export const restless = 'did not come to rest'

let worlds = 0

/** Lets a world happen; returns what is wrong with it afterwards. */
export async function happen(setting: Setting, world: World, mutation: Mutation = {}): Promise<string[]> {
  const name = `w${(worlds += 1)}`
  const random = seededRandom(world.seed)
  const facts = world.histories.flatMap((history, i) => factsOf(history, `${name}-${i}`))
  const found: string[] = []
  for (const consumer of [`${name}-a`, `${name}-b`]) {
    const broker = new ChaosBroker(facts, random)
    if (!(await runToTheEnd({ ...setting, consumer, broker, world, random, mutation }))) found.push(`${consumer}: ${restless}`)
    found.push(...(await judge(setting, consumer, facts)).map((problem) => `${consumer}: ${problem}`))
  }
  return found
}

interface Run extends Setting {
  readonly consumer: string
  readonly broker: ChaosBroker
  readonly world: World
  readonly random: Random
  readonly mutation: Mutation
}

/** Returns whether nothing was left in the end. */
async function runToTheEnd(run: Run): Promise<boolean> {
  const { world, broker, db, schema, consumer } = run
  const running = new Set<Instance>()
  const deaths = [...world.deaths]
  const start = (): void => {
    const instance = startInstance(run, deaths.shift())
    running.add(instance)
    void instance.ended.then(() => {
      running.delete(instance)
      broker.takeBack(instance)
      if (instance.life.dead) start()
    })
  }
  for (let i = 0; i < world.instances; i += 1) start()
  const isAtRest = await eventually(
    async () => {
      const { rows } = await db.query(`select count(*)::int as waiting from ${schema}.inbox_message where consumer = $1`, [
        consumer,
      ])
      return broker.isEmpty && (rows as { waiting: number }[])[0]?.waiting === 0
    },
    { timeoutMs: run.mutation.patienceMs ?? 60_000 },
  ).catch(() => false)
  for (const instance of running) instance.stop()
  await Promise.all([...running].map(({ ended }) => ended))
  return isAtRest
}

interface Instance {
  readonly life: Life
  readonly ended: Promise<void>
  stop(): void
}

function startInstance({ db, schema, consumer, broker, world, random, mutation }: Run, deathAfter: number | undefined): Instance {
  const stopping = new AbortController()
  const aborting = new AbortController()
  const life = new Life(deathAfter, () => {
    stopping.abort()
    aborting.abort()
  })
  const port = mortal(mutation.database?.(db) ?? db, life)
  const instance: { life: Life; ended: Promise<void>; stop: () => void } = {
    life,
    ended: Promise.resolve(),
    stop: () => stopping.abort(),
  }
  const transport = broker.transport(instance, mutation.delivery ?? ((delivery) => delivery))
  const built = createConsumer({
    db: port,
    transport,
    name: consumer,
    streams: mutation.streams ?? Object.values(streams),
    schema,
    batchSize: world.batchSize,
    lingerMs: randomInt(random, 0, 3),
    pollMs: 10,
    backoff: { firstMs: 1, maxMs: 3 },
    lockTimeoutMs: 300,
    leaseMs: 300,
    // Nothing is given up here, however often instances die: giving up is another test's business.
    maxCrashes: 1_000,
    maxAttempts: 1_000,
    ...mutation.options,
  })
  register(built, { schema, consumer, random })
  instance.ended = built.run({ stopping: stopping.signal, aborting: aborting.signal }).catch(() => undefined)
  return instance
}

function register(built: Consumer, { schema, consumer, random }: { schema: string; consumer: string; random: Random }): void {
  const record = async (
    tx: Tx,
    event: Pick<ConsumedEvent, 'id' | 'aggregateType' | 'aggregateId' | 'version'>,
  ): Promise<void> => {
    await tx.query(
      `insert into ${schema}.effect (consumer, event_id, aggregate_type, aggregate_id, version) values ($1, $2, $3, $4, $5)`,
      [consumer, event.id, event.aggregateType, event.aggregateId, String(event.version)],
    )
    // Sometimes a handler fails, once.
    if (random.next() < 0.05) throw new Error('a bad moment')
  }
  const add: Parameters<Consumer['on']>[1] = async (event, { tx }) => {
    const { amount } = event.data as { amount: number }
    const { rows } = await tx.query(`select total::int as total from ${schema}.total where consumer = $1 and aggregate_id = $2`, [
      consumer,
      event.aggregateId,
    ])
    const before = (rows as { total: number }[])[0]?.total ?? 0
    const after = event.type === 'Reset' ? amount : step(before, amount)
    await tx.query(
      `insert into ${schema}.total values ($1, $2, $3, $4) on conflict (consumer, aggregate_id) do update set total = excluded.total`,
      [consumer, event.aggregateType, event.aggregateId, after],
    )
    await record(tx, event)
  }
  const [noted, moved] = built.settings.streams as unknown as [typeof notes, typeof wallets, typeof meters]
  const turned = built.settings.streams[2] as unknown as typeof meters
  built.project(noted, {
    table: `${schema}.note_view`,
    key: 'consumer_note',
    keyOf: (id) => [`${consumer} ${id}`],
    set: ({ data }) => ({ amount: data.amount }),
  })
  built.on(noted.Noted, (event, { tx }) => record(tx, event))
  built.on(moved.Moved, add).on(turned.Turned, add).on(turned.Reset, add)
}

function mortal(db: Database, life: Life): Database {
  return {
    query: async (text, values) => {
      life.step()
      return await db.query(text, values)
    },
    attempt: async (options, work) => {
      life.step()
      const result = await db.attempt(options, (tx) =>
        work(
          new Proxy(tx, {
            get: (target, property) =>
              property === 'query'
                ? async (text: string, values?: never): Promise<QueryResult> => {
                    life.step()
                    return await target.query(text, values)
                  }
                : Reflect.get(target, property),
          }),
        ),
      )
      // Committed, and nobody hears of it.
      life.step()
      return result
    },
  }
}
