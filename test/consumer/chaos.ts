/**
 * A world in which everything that "at least once" allows happens to consumers: any order, copies, lost acks, handlers that
 * fail once, and instances that die between any two steps. At the end, what happened is compared with the owner's history.
 *
 * The product's own code runs on a real Postgres; only its ports are wrapped. Mutants wrap them a little more.
 */
import { z } from 'zod'
import { createConsumer, type Consumer } from '../../src/consumer/consumer.ts'
import type { ConsumerOptions } from '../../src/consumer/consumer-options.ts'
import { delta, state, tombstone } from '../../src/core/event.ts'
import { newId } from '../../src/core/id.ts'
import { randomInt, seededRandom, type Random } from '../../src/core/random.ts'
import { stream } from '../../src/core/stream.ts'
import type { Database, QueryResult, Tx } from '../../src/postgres/database.ts'
import { eventually } from '../../src/testing/eventually.ts'
import type { Delivery, IncomingMessage, Transport } from '../../src/transport/transport.ts'

const change = z.object({ amount: z.number() })

/** Whole states and tombstones; only deltas; deltas with states that stand for them. */
export const notes = stream('note', { topic: 'note.events', events: { Noted: state(change), Erased: tombstone() } })
export const wallets = stream('wallet', { topic: 'note.events', events: { Moved: delta(change) } })
export const meters = stream('meter', { topic: 'note.events', events: { Turned: delta(change), Reset: state(change) } })
const streams = { note: notes, wallet: wallets, meter: meters }

export interface Fact {
  readonly id: string
  readonly aggregateType: keyof typeof streams
  readonly aggregateId: string
  readonly version: number
  readonly type: string
  readonly amount: number
}

export interface World {
  readonly seed: number
  /** Events of each aggregate, by the numbers that choose their types and amounts. */
  readonly histories: readonly { readonly aggregateType: keyof typeof streams; readonly choices: readonly number[] }[]
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

export interface Setting {
  readonly db: Database
  readonly schema: string
}

/** The user's tables. The order of amounts matters to `total`, so that deltas out of turn show. */
export async function createChaosTables({ db, schema }: Setting): Promise<void> {
  await db.query(
    `create table ${schema}.note_view (consumer_note text primary key, amount bigint, version bigint not null, deleted_at timestamptz)`,
  )
  await db.query(
    `create table ${schema}.total (consumer text, aggregate_id text, total bigint not null, primary key (consumer, aggregate_id))`,
  )
  await db.query(
    `create table ${schema}.effect (at bigint generated always as identity, consumer text, event_id uuid, aggregate_id text, version bigint)`,
  )
  await db.query(`create table ${schema}.went_back (note text)`)
  await db.query(
    `create function ${schema}.watch_version() returns trigger language plpgsql as $$ begin
       if new.version < old.version then insert into ${schema}.went_back values (new.consumer_note); end if; return new; end $$;
     create trigger watch_version after update on ${schema}.note_view for each row execute function ${schema}.watch_version()`,
  )
}

let worlds = 0

/** Lets a world happen; returns what is wrong with it afterwards. */
export async function happen(setting: Setting, world: World, mutation: Mutation = {}): Promise<string[]> {
  const name = `w${(worlds += 1)}`
  const random = seededRandom(world.seed)
  const facts = world.histories.flatMap((history, i) => factsOf(history, `${name}-${i}`))
  const found: string[] = []
  for (const consumer of [`${name}-a`, `${name}-b`]) {
    const broker = new ChaosBroker(facts, random)
    await runToTheEnd({ ...setting, consumer, broker, world, random, mutation })
    found.push(...(await judge(setting, consumer, facts)).map((problem) => `${consumer}: ${problem}`))
  }
  return found
}

function factsOf({ aggregateType, choices }: World['histories'][number], aggregateId: string): Fact[] {
  return choices.map((choice, i) => {
    const rare = choice % 5 === 0
    const type = { note: rare ? 'Erased' : 'Noted', wallet: 'Moved', meter: rare ? 'Reset' : 'Turned' }[aggregateType]
    return { id: newId(), aggregateType, aggregateId, version: i + 1, type, amount: choice }
  })
}

/** What the owner has at the end: `undefined` for a note that is gone. */
function fold(facts: readonly Fact[]): number | undefined {
  let total: number | undefined = 0
  for (const { type, amount } of facts) {
    if (type === 'Erased') total = undefined
    else if (type === 'Noted' || type === 'Reset') total = amount
    else total = step(total ?? 0, amount)
  }
  return total
}

function step(total: number, amount: number): number {
  return (total * 3 + amount) % 1_000_003
}

interface Run extends Setting {
  readonly consumer: string
  readonly broker: ChaosBroker
  readonly world: World
  readonly random: Random
  readonly mutation: Mutation
}

async function runToTheEnd(run: Run): Promise<void> {
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
  await eventually(
    async () => {
      const { rows } = await db.query(`select count(*)::int as waiting from ${schema}.inbox_message where consumer = $1`, [
        consumer,
      ])
      return broker.isEmpty && (rows as { waiting: number }[])[0]?.waiting === 0
    },
    { timeoutMs: run.mutation.patienceMs ?? 20_000 },
  ).catch(() => undefined)
  for (const instance of running) instance.stop()
  await Promise.all([...running].map(({ ended }) => ended))
}

class Life {
  dead = false
  #stepsLeft: number
  readonly #onDeath: () => void

  constructor(steps: number | undefined, onDeath: () => void) {
    this.#stepsLeft = steps ?? Number.POSITIVE_INFINITY
    this.#onDeath = onDeath
  }

  /** Between any two steps the instance may die; from then on nothing it does has an effect. */
  step(): void {
    if (!this.dead && (this.#stepsLeft -= 1) < 0) {
      this.dead = true
      this.#onDeath()
    }
    if (this.dead) throw new Error('Connection terminated: this instance is dead.')
  }
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
  const record = async (tx: Tx, event: { id: string; aggregateId: string; version: bigint }): Promise<void> => {
    await tx.query(`insert into ${schema}.effect (consumer, event_id, aggregate_id, version) values ($1, $2, $3, $4)`, [
      consumer,
      event.id,
      event.aggregateId,
      String(event.version),
    ])
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
      `insert into ${schema}.total values ($1, $2, $3) on conflict (consumer, aggregate_id) do update set total = excluded.total`,
      [consumer, event.aggregateId, after],
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

interface Copy {
  readonly message: Omit<IncomingMessage, 'deliveryAttempt'>
  attempts: number
  holder: object | undefined
}

/** Any order, one to three copies of each message, and acks that get lost. */
class ChaosBroker {
  #waiting: Copy[]
  readonly #held = new Set<Copy>()
  readonly #random: Random
  #lostAcks = 10

  constructor(facts: readonly Fact[], random: Random) {
    this.#random = random
    const copies = facts.flatMap((fact) => Array.from({ length: randomInt(random, 1, 3) }, () => toCopy(fact)))
    this.#waiting = copies
      .map((copy) => ({ copy, place: random.next() }))
      .toSorted((a, b) => a.place - b.place)
      .map(({ copy }) => copy)
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.#held.size === 0
  }

  takeBack(holder: object): void {
    for (const copy of this.#held) if (copy.holder === holder) this.#again(copy)
  }

  transport(holder: { readonly life: Life }, change: (delivery: Delivery) => Delivery): Pick<Transport, 'receive'> {
    return {
      receive: ({ onDelivery }) => {
        const give = (): void => {
          for (let i = 0; i < 7; i += 1) {
            const copy = this.#waiting.shift()
            if (copy === undefined || holder.life.dead) {
              if (copy !== undefined) this.#waiting.unshift(copy)
              return
            }
            copy.holder = holder
            copy.attempts += 1
            this.#held.add(copy)
            onDelivery(change(this.#delivery(copy, holder)))
          }
        }
        const timer = setInterval(give, 1)
        return Promise.resolve({
          close: async () => {
            clearInterval(timer)
            await eventually(() => holder.life.dead || ![...this.#held].some((copy) => copy.holder === holder), {
              timeoutMs: 5_000,
            }).catch(() => undefined)
          },
        })
      },
    }
  }

  #delivery(copy: Copy, holder: { readonly life: Life }): Delivery {
    const isMine = (): boolean => copy.holder === holder && this.#held.has(copy) && !holder.life.dead
    return {
      message: { ...copy.message, deliveryAttempt: copy.attempts },
      lost: new AbortController().signal,
      ack: () => {
        try {
          holder.life.step()
        } catch {
          return Promise.resolve('lost')
        }
        if (!isMine()) return Promise.resolve('lost')
        const lost = this.#lostAcks > 0 && this.#random.next() < 0.1
        if (lost) {
          this.#lostAcks -= 1
          this.#again(copy)
          return Promise.resolve('unconfirmed')
        }
        this.#held.delete(copy)
        return Promise.resolve('confirmed')
      },
      nack: () => {
        if (isMine()) this.#again(copy)
        return Promise.resolve()
      },
    }
  }

  #again(copy: Copy): void {
    this.#held.delete(copy)
    copy.holder = undefined
    this.#waiting.splice(randomInt(this.#random, 0, this.#waiting.length), 0, copy)
  }
}

function toCopy(fact: Fact): Copy {
  const message = {
    messageId: newId(),
    topic: 'note.events',
    orderingKey: fact.aggregateId,
    attributes: {
      event_id: fact.id,
      event_type: fact.type,
      aggregate_type: fact.aggregateType,
      aggregate_id: fact.aggregateId,
      version: String(fact.version),
      schema_version: '1',
      occurred_at: new Date().toISOString(),
    },
    body: Buffer.from(fact.type === 'Erased' ? 'null' : JSON.stringify({ amount: fact.amount })),
    publishedAtMs: 0,
  }
  return { message, attempts: 0, holder: undefined }
}

/** What is wrong: states that differ from the owner's, effects that did not happen once, versions that went back. */
async function judge({ db, schema }: Setting, consumer: string, facts: readonly Fact[]): Promise<string[]> {
  const found: string[] = []
  const ask = async <Row>(text: string, values: readonly string[]): Promise<readonly Row[]> =>
    (await db.query(text, values)).rows as readonly Row[]
  const effects = await ask<{ event_id: string; aggregate_id: string; version: number }>(
    `select event_id::text, aggregate_id, version::int from ${schema}.effect where consumer = $1 order by at`,
    [consumer],
  )
  const counts = new Map<string, number>()
  for (const { event_id: id } of effects) counts.set(id, (counts.get(id) ?? 0) + 1)
  for (const [id, own] of Map.groupBy(facts, ({ aggregateId }) => aggregateId)) {
    const type = own[0]?.aggregateType
    const expected = fold(own)
    const [row] =
      type === 'note'
        ? await ask<{ value: number }>(
            `select amount::int as value from ${schema}.note_view where consumer_note = $1 and deleted_at is null`,
            [`${consumer} ${id}`],
          )
        : await ask<{ value: number }>(
            `select total::int as value from ${schema}.total where consumer = $1 and aggregate_id = $2`,
            [consumer, id],
          )
    if (row?.value !== expected) found.push(`${id} is ${row?.value}, and the owner has ${expected}`)
    for (const fact of own) {
      const count = counts.get(fact.id) ?? 0
      const mayBeSkipped = fact.type === 'Turned' || fact.type === 'Erased'
      if (count > 1 || (count === 0 && !mayBeSkipped && !isSuperseded(fact, own)))
        found.push(`${fact.type} ${id} ${fact.version} had ${count} effects`)
    }
    const order = effects.filter(({ aggregate_id: of }) => of === id).map(({ version }) => version)
    if (type !== 'note' && order.some((version, i) => version < (order[i - 1] ?? 0)))
      found.push(`${id} was applied as ${order.join(' ')}`)
  }
  for (const { note } of await ask<{ note: string }>(`select note from ${schema}.went_back where note like $1`, [
    `${consumer} %`,
  ]))
    found.push(`${note} went back`)
  return found
}

/** A state of a meter may be skipped for a later one; every event of the other streams must have its effect. */
function isSuperseded({ type, version }: Fact, own: readonly Fact[]): boolean {
  return type === 'Reset' && own.some((other) => other.type === 'Reset' && other.version > version)
}
