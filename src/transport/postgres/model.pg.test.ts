import fc from 'fast-check'
import { expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { message, publishAll } from '../../testing/contract/probe.ts'
import type { Delivery, Receiver } from '../port/transport.ts'
import { postgresTransport, type PostgresTransport } from './postgres-transport.ts'

/**
 * Random histories of publishing, receiving, acking, nacking, leaving and crashing, by one to three receivers. Whatever
 * happens: nothing is lost, the first deliveries of each key are in order, and a key is in one hand at a time.
 */

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'transport' })

type Step =
  | { readonly do: 'publish'; readonly keys: readonly (string | undefined)[] }
  | { readonly do: 'join' }
  | { readonly do: 'leave' | 'crash' | 'abandon'; readonly who: number }
  | { readonly do: 'ack' | 'nack'; readonly who: number; readonly which: number; readonly delayMs: number }
  | { readonly do: 'ackAll'; readonly who: number }
  | { readonly do: 'wait' }

const who = fc.nat({ max: 2 })
const key = fc.constantFrom('a', 'a', 'b', 'c', undefined)
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('publish' as const), keys: fc.array(key, { minLength: 1, maxLength: 8 }) }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('join' as const) }) },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constantFrom('ack' as const, 'nack' as const),
      who,
      which: fc.nat({ max: 9 }),
      delayMs: fc.constantFrom(0, 0, 15),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('ackAll' as const), who }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('leave' as const, 'abandon' as const), who }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('crash' as const), who }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('wait' as const) }) },
)

interface Member {
  readonly transport: PostgresTransport
  readonly receiver: Receiver
  readonly hand: Delivery[]
  crash(): void
}

class History {
  readonly topic: string
  readonly publisher = postgresTransport({ db })
  readonly members: Member[] = []
  readonly everyone: Member[] = []
  readonly firsts = new Map<string, string[]>()
  readonly seen = new Set<string>()
  readonly acked = new Set<string>()
  readonly overlaps: string[] = []
  readonly sent: { readonly name: string; readonly key: string | undefined }[] = []
  deliveries = 0

  constructor(topic: string) {
    this.topic = topic
  }

  async publish(keys: readonly (string | undefined)[]): Promise<void> {
    const fresh = keys.map((each, i) => ({ name: `m${this.sent.length + i}`, key: each }))
    this.sent.push(...fresh)
    await publishAll(
      this.publisher,
      fresh.map(({ name, key: of }) => message(this.topic, name, of)),
    )
  }

  async join(): Promise<void> {
    if (this.members.length >= 3) return
    let down = false
    const way = {
      query: (text: string, values?: never) => (down ? Promise.reject(new Error('crashed')) : db.query(text, values)),
    }
    const transport = postgresTransport({ db: way, leaseMs: 300, lanes: 4, idleMs: 10 })
    const hand: Delivery[] = []
    const onDelivery = (delivery: Delivery): void => {
      if (down) return
      this.#note(delivery, hand)
      hand.push(delivery)
    }
    const receiver = await transport.receive({
      topic: this.topic,
      consumer: 'model',
      maxMessages: 6,
      maxBytes: 1_000_000,
      onDelivery,
      onError: () => undefined,
    })
    const member = { transport, receiver, hand, crash: () => void (down = true) }
    this.members.push(member)
    this.everyone.push(member)
  }

  async run(each: Step): Promise<void> {
    if (each.do === 'publish') return await this.publish(each.keys)
    if (each.do === 'join') return await this.join()
    if (each.do === 'wait') return await this.#progress()
    const member = this.members[each.who]
    if (member === undefined) return
    if (each.do === 'ack' || each.do === 'nack') return await this.#settle(member, each)
    if (each.do === 'ackAll') return await this.ackAll(member)
    this.members.splice(each.who, 1)
    if (each.do === 'crash') member.crash()
    if (each.do === 'abandon') await member.receiver.close(AbortSignal.abort())
    if (each.do === 'leave') {
      const closing = member.receiver.close()
      await this.ackAll(member)
      await closing
    }
  }

  async ackAll(member: Member): Promise<void> {
    await Promise.all(member.hand.splice(0).map((delivery) => this.#ack(delivery)))
  }

  async #settle(
    member: Member,
    each: { readonly do: 'ack' | 'nack'; readonly which: number; readonly delayMs: number },
  ): Promise<void> {
    const [delivery] = member.hand.splice(each.which % Math.max(1, member.hand.length), 1)
    if (delivery !== undefined) await (each.do === 'ack' ? this.#ack(delivery) : delivery.nack(each.delayMs))
  }

  async #ack(delivery: Delivery): Promise<void> {
    if ((await delivery.ack()) === 'confirmed') this.acked.add(delivery.message.attributes['name'] ?? '')
  }

  /** Waits until something new was delivered, if anything can be. */
  async #progress(): Promise<void> {
    const before = this.deliveries
    if (this.members.some(({ hand }) => hand.length < 6) && this.seen.size < this.sent.length) {
      await eventually(() => this.deliveries > before, { timeoutMs: 30 }).catch(() => undefined)
    }
  }

  #note({ message: { attributes, orderingKey } }: Delivery, hand: readonly Delivery[]): void {
    const name = attributes['name'] ?? ''
    this.deliveries += 1
    if (orderingKey !== undefined) {
      for (const other of this.members) {
        if (other.hand !== hand && other.hand.some((held) => !held.lost.aborted && held.message.orderingKey === orderingKey))
          this.overlaps.push(name)
      }
    }
    if (this.seen.has(name)) return
    this.seen.add(name)
    this.firsts.set(orderingKey ?? '', [...(this.firsts.get(orderingKey ?? '') ?? []), name])
  }
}

let histories = 0

test(
  'whatever receivers do, nothing is lost, each key comes first in order, and it is in one hand at a time',
  { timeout: 300_000 },
  async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 40 }), async (steps) => {
        const history = new History(`model-${++histories}`)
        try {
          await history.join()
          for (const each of steps) await history.run(each)
          if (history.members.length === 0) await history.join()
          await eventually(async () => {
            for (const member of history.members) await history.ackAll(member)
            return history.sent.every(({ name }) => history.acked.has(name))
          })
          expect(history.overlaps).toEqual([])
          for (const of of ['a', 'b', 'c'])
            expect(history.firsts.get(of) ?? []).toEqual(history.sent.filter((each) => each.key === of).map(({ name }) => name))
          const { rows } = await db.query(
            `select from waybill.transport_delivery d join waybill.transport_subscription s on s.id = d.subscription_id join waybill.transport_topic t on t.id = s.topic_id where t.name = $1`,
            [history.topic],
          )
          expect(rows).toHaveLength(0)
        } finally {
          for (const { transport } of history.everyone) await transport.close()
        }
      }),
      { numRuns: 30 },
    )
  },
)
