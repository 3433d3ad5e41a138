/**
 * What does not compile is refused at run time, too: not everybody compiles, and some cast.
 */
import { expect, test } from 'vitest'
import { z } from 'zod'
import { createOutbox } from '../../src/outbox/outbox.ts'
import { delta, fromPg, state, stream, tombstone, transaction, type Tx } from '../../src/index.ts'
import { markTx } from '../../src/postgres/query/database.ts'

const videos = stream('video', {
  topic: 'video.events',
  events: {
    VideoPublished: state(z.object({ title: z.string() })),
    VideoRated: delta(z.object({ stars: z.number() })),
    VideoRemoved: tombstone(),
  },
})
const data = { title: 'Alien' }

/** As in a program that nobody compiled. */
const add = createOutbox().add as (...args: readonly unknown[]) => Promise<unknown>

const mustNotBeAsked = async (): Promise<never> => await Promise.reject(new Error('a statement was sent'))
const tx: Tx = markTx({ native: undefined, query: mustNotBeAsked })
const pool = { connect: mustNotBeAsked, query: mustNotBeAsked, totalCount: 0 }

test.each([
  ['a pool', pool],
  ['a database', fromPg(pool)],
  ['a client that was not looked at', { query: mustNotBeAsked }],
  ['a copy of a transaction', { ...tx }],
  ['nothing', undefined],
])('%s passed as the transaction is refused, and nothing is sent', async (_what, given) => {
  await expect(add(given, videos.VideoPublished, '1', data)).rejects.toThrow(
    expect.objectContaining({
      code: 'NOT_A_TRANSACTION',
      message: expect.stringMatching(
        /needs a transaction, not a pool or connection\. Call it inside transaction\(db, async \(tx\) => …\)/,
      ),
    }),
  )
})

test('a client outside a transaction is refused', () => {
  const idle = { query: mustNotBeAsked, getTransactionStatus: () => 'I' }
  expect(() => fromPg(idle)).toThrow(/this client is not inside a transaction, or its COMMIT was sent\. Send BEGIN first/)
})

test('a pool without its adapter cannot start a transaction', async () => {
  await expect(transaction(pool as never, async () => await Promise.resolve())).rejects.toThrow(
    /db must come from an adapter: fromPg\(pool\)/,
  )
})

const unknown = (videos as unknown as Record<string, unknown>)['VideoPublishd']

test.each([
  ['an unknown event type', [unknown, '1', data], 'UNKNOWN_NAME', /not an event type\. Pass a property of a stream/],
  ['a name', ['VideoPublished', '1', data], 'UNKNOWN_NAME', /not an event type\. Pass a property of a stream/],
  ['a stream', [videos, '1', data], 'UNKNOWN_NAME', /not an event type\. Pass a property of a stream/],
  ['an event without a stream', [state(z.string()), '1', 'a'], 'UNKNOWN_NAME', /not an event type/],
  ['a wrong type', [videos.VideoPublished, '1', { title: 7 }], 'INVALID_INPUT', /does not fit its schema: title: /],
  ['no data', [videos.VideoPublished, '1'], 'INVALID_INPUT', /does not fit its schema/],
  ['the data of another event', [videos.VideoRated, '1', data], 'INVALID_INPUT', /does not fit its schema: stars: /],
  ['data for a tombstone', [videos.VideoRemoved, '1', data], 'INVALID_INPUT', /this tombstone carries no data; pass nothing/],
  ['an id that is no text', [videos.VideoPublished, 1, data], 'INVALID_INPUT', /aggregate id must be non-empty text, got number/],
  ['an empty id', [videos.VideoPublished, '', data], 'INVALID_INPUT', /aggregate id must be non-empty text/],
  ['a misspelt option', [videos.VideoPublished, '1', data, { verson: 2n }], 'INVALID_OPTION', /Did you mean "version"\?/],
  [
    'a version that is no number',
    [videos.VideoPublished, '1', data, { version: 'two' }],
    'INVALID_INPUT',
    /version: expected a whole number/,
  ],
] as [string, unknown[], string, RegExp][])(
  '%s is refused with a sentence that says what to do, and nothing is sent',
  async (_what, args, code, message) => {
    await expect(add(tx, ...args)).rejects.toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }))
  },
)
