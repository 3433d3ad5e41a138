import { expect, test } from 'vitest'
import { z } from 'zod'
import { consumerFixture, message, type ConsumerFixture, type videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { claimCheck } from '../../codec/claim-check.ts'
import type { BlobStore } from '../../core/encoding/blob-store.ts'
import { jsonCodec, type Codec } from '../../core/encoding/codec.ts'
import { WaybillError } from '../../core/errors.ts'
import { delta, state } from '../../core/event/event.ts'
import { stream } from '../../core/event/stream.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

interface Report {
  readonly text: string
}

/** Bytes in memory, which can be out of reach, or gone. */
class Bucket implements BlobStore {
  isDown = false
  refused = 0
  readonly #kept = new Map<string, Uint8Array>()

  put(key: string, bytes: Uint8Array): Promise<void> {
    this.#kept.set(key, bytes)
    return Promise.resolve()
  }

  get(key: string): Promise<Uint8Array | undefined> {
    if (!this.isDown) return Promise.resolve(this.#kept.get(key))
    this.refused += 1
    return Promise.reject(new Error('connect ECONNREFUSED'))
  }

  empty(): void {
    this.#kept.clear()
  }
}

const schema = z.object({ text: z.string() })
const large = 'x'.repeat(500)

/** Reports that are large are in the bucket; and the fixture with a consumer that writes down what it handles. */
async function archive(kind: typeof state | typeof delta = state): Promise<{
  readonly fixture: ConsumerFixture
  readonly bucket: Bucket
  readonly report: (id: string, version: number, text: string) => Promise<OutgoingMessage>
  readonly start: (options: Partial<ConsumerOptions>) => () => Promise<void>
  readonly effects: () => Promise<readonly string[]>
}> {
  const fixture = await consumerFixture(db)
  const bucket = new Bucket()
  const codec = claimCheck(jsonCodec(schema), { store: bucket, thresholdBytes: 100 })
  return { fixture, bucket, ...withCodec(fixture, codec, kind) }
}

function withCodec(
  fixture: ConsumerFixture,
  codec: Codec<Report>,
  kind: typeof state | typeof delta,
): Pick<Awaited<ReturnType<typeof archive>>, 'report' | 'start' | 'effects'> {
  const reports = stream('report', { topic: 'report.events', events: { ReportMade: kind(codec) } })
  return {
    report: async (id, version, text) => ({
      ...message({ stream: reports as unknown as typeof videos, type: 'ReportMade', id, version }, null),
      body: await codec.encode({ text }),
    }),
    start: (options) => {
      const consumer = fixture.consumer({ streams: [reports], ...options })
      consumer.on(reports.ReportMade, async (event, { tx }) => {
        if (event.data.text === 'poison') throw new Error('poison')
        await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version) values ($1, $2)`, [
          event.aggregateId,
          String(event.version),
        ])
      })
      return fixture.start(consumer)
    },
    effects: async () =>
      (
        await fixture.query<{ name: string }>(`select aggregate_id || ' ' || version as name from $schema.effect order by at`)
      ).map(({ name }) => name),
  }
}

test.each(['direct', 'stored'] as const)(
  'an outage of the blob store is charged to no event, holds nobody else, and keeps the order (%s)',
  async (mode) => {
    const { fixture, bucket, report, start, effects } = await archive()
    await fixture.publish(await report('a', 1, large), await report('a', 2, 'small'), await report('b', 1, 'small'))
    bucket.isDown = true
    const stop = start({ mode, maxAttempts: 2 })
    await eventually(() => bucket.refused >= 5)
    await eventually(async () => (await effects()).length === 1)
    expect(await effects()).toEqual(['b 1'])
    expect(await fixture.count('dead_letter')).toBe(0)
    expect(await fixture.count('delivery_attempt', 'attempts > 0')).toBe(0)
    expect(fixture.heard('consumer.retried').some(({ error }) => /blob store/.test(error))).toBe(true)
    bucket.isDown = false
    await eventually(async () => (await effects()).length === 3)
    await stop()
    expect(await effects()).toEqual(['b 1', 'a 1', 'a 2'])
    expect(fixture.heard('consumer.failed')).toEqual([])
    expect(await fixture.count('dead_letter')).toBe(0)
  },
)

test.each(['direct', 'stored'] as const)(
  'bytes that are missing are tried again before the event is given up (%s)',
  async (mode) => {
    const { fixture, bucket, report, start, effects } = await archive()
    const [lost, late] = [await report('a', 1, large), await report('b', 1, `${large} late`)]
    bucket.empty()
    await fixture.publish(lost, late)
    // Somebody restores one of them as soon as it is missed.
    fixture.signals.on('consumer.failed', ({ aggregateId }) => {
      if (aggregateId === 'b') void report('b', 1, `${large} late`)
    })
    const stop = start({ mode, maxAttempts: 4 })
    await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await effects()).length === 1)
    await stop()
    expect(await effects()).toEqual(['b 1'])
    expect(await fixture.query('select aggregate_id, reason, attempts from $schema.dead_letter')).toEqual([
      { aggregate_id: 'a', reason: 'failed', attempts: 4 },
    ])
  },
)

test.each(['direct', 'stored'] as const)('a delta that waits for its turn waits out an outage too (%s)', async (mode) => {
  const { fixture, bucket, report, start, effects } = await archive(delta)
  await fixture.publish({ ...(await report('a', 2, large)), orderingKey: 'early' })
  const stop = start({ mode, maxAttempts: 1 })
  await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 1)
  bucket.isDown = true
  await fixture.publish(await report('a', 1, 'small'), { ...(await report('a', 3, 'small')), orderingKey: 'later' })
  await eventually(async () => (await effects()).length === 1)
  const before = bucket.refused
  await eventually(() => bucket.refused >= before + 3)
  expect(await fixture.count('dead_letter')).toBe(0)
  bucket.isDown = false
  await eventually(async () => (await effects()).length === 3)
  await stop()
  expect(await effects()).toEqual(['a 1', 'a 2', 'a 3'])
  expect(await fixture.count('delivery_attempt', 'attempts > 0')).toBe(0)
})

test.each(['hold', 'pass'] as const)(
  'a redrive during an outage is not over: the letter is tried again, and those behind it wait (%s)',
  async (onDead) => {
    const { fixture, bucket, report, start, effects } = await archive()
    const letters = [await report('a', 1, large), await report('a', 2, 'poison')]
    bucket.empty()
    const stopFirst = start({ maxAttempts: 1, onDead: 'pass' })
    await fixture.publish(...letters)
    await eventually(async () => (await fixture.count('dead_letter', `state = 'dead'`)) === 2)
    await stopFirst()
    await report('a', 1, large)
    bucket.isDown = true
    const stop = start({ maxAttempts: 1, onDead })
    const redrive = await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
    expect(redrive.redriven).toBe(2)
    await eventually(() => bucket.refused >= 3)
    expect(await fixture.query('select version::int, state, redrives from $schema.dead_letter order by 1')).toEqual([
      { version: 1, state: 'redriving', redrives: 0 },
      { version: 2, state: 'redriving', redrives: 0 },
    ])
    bucket.isDown = false
    await eventually(async () => (await fixture.count('dead_letter', `state = 'redriven'`)) === 1)
    await eventually(async () => (await fixture.count('dead_letter', `version = 2 and state = 'dead' and redrives = 1`)) === 1)
    await stop()
    expect(await effects()).toEqual(['a 1'])
  },
)

test('a codec that says at once that its registry is out of reach costs its events nothing', async () => {
  const fixture = await consumerFixture(db)
  const plain = jsonCodec(schema)
  let asked = 0
  const codec: Codec<Report> = {
    ...plain,
    decode: (bytes, version) => {
      if ((asked += 1) <= 5) throw new WaybillError('UNAVAILABLE', 'The schema registry is out of reach.')
      return plain.decode(bytes, version)
    },
  }
  const { report, start, effects } = withCodec(fixture, codec, state)
  await fixture.publish(await report('a', 1, 'one'))
  const stop = start({ maxAttempts: 1 })
  await eventually(async () => (await effects()).length === 1)
  await stop()
  expect(asked).toBe(6)
  expect(await fixture.count('dead_letter')).toBe(0)
})
