/** A shared cache that others write to: what they can and cannot make of it. */
import { describe, expect, test } from 'vitest'
import { depositCommand } from '../../../test/command/bank.ts'
import { commandSetup, heard } from '../../../test/command/command-setup.ts'
import { fetchCommand } from '../../integrations/fetch.ts'
import type { CommandCache } from './cache.ts'

const { bank, commandsWith, newAccount, newRequest } = await commandSetup()
const cacheSecret = 'q83vASNFZ4mrze8Ay7F/wQhT1mPz0XcE'

/** A cache that anybody may write to, with no end for any entry. */
function shared() {
  const entries = new Map<string, string>()
  const cache: CommandCache = {
    claim: async (key, value) => {
      const found = entries.get(key)
      if (found === undefined) entries.set(key, value)
      return found
    },
    complete: async (key, pending, { value }) => {
      if ((entries.get(key) ?? pending) === pending) entries.set(key, value)
    },
    release: async (key, pending) => void (entries.get(key) === pending && entries.delete(key)),
  }
  return { cache, entries }
}

const request = () => ({ principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } })

/** Writes into the place of a request's entry; the rest of the forged entry is as the true one would have it. */
async function forged(options: Parameters<typeof commandsWith>[0], entryOf: (fingerprint: string) => object) {
  const { cache, entries } = shared()
  const commands = commandsWith({ ...options, cache })
  const asked = request()
  const watched = shared()
  let fingerprint = ''
  let key = ''
  const spied: CommandCache = {
    ...watched.cache,
    claim: async (at, value) => {
      key = at
      fingerprint = (JSON.parse(value.slice(value.indexOf('{'))) as { fingerprint: string }).fingerprint
      throw new Error('only looked')
    },
  }
  const failing = depositCommand({ after: () => Promise.reject(new Error('rolled back')) })
  await commandsWith({ cache: spied })
    .run(failing, asked)
    .catch(() => undefined)
  entries.set(key, JSON.stringify(entryOf(fingerprint)))
  return { commands, asked, entries, key }
}

const lies: Readonly<Record<string, (fingerprint: string) => object>> = {
  'a success that never was': (fingerprint) => ({
    state: 'completed',
    fingerprint,
    rejected: false,
    response: '{"balance":1000000}',
    token: 'w2.x',
  }),
  'a rejection that never was': (fingerprint) => ({
    state: 'completed',
    fingerprint,
    rejected: true,
    response: '{"reason":"account-closed","details":{}}',
  }),
  'another request under this id': () => ({ state: 'completed', fingerprint: 'other', rejected: false }),
  'a run that is under way for ever': (fingerprint) => ({
    state: 'pending',
    fingerprint,
    token: 'x',
    aliveAtMs: Date.now() + 1_000_000,
  }),
}

describe.each(Object.keys(lies))('a forged entry that tells of %s', (name) => {
  test('is nothing where entries are sealed: the request is executed, and its true end takes the place', async () => {
    const { commands, asked } = await forged({ cacheSecret }, lies[name]!)
    const deposit = depositCommand()
    const first = await commands.run(deposit, asked)
    expect(first).toMatchObject({ status: 'executed', response: { balance: 5 } })
    expect(await commands.run(deposit, asked)).toMatchObject({ status: 'replayed', response: { balance: 5 }, from: 'cache' })
    expect(await bank.effects(asked.requestId)).toBe(1)
  })

  test('is not asked for by a sensitive command, where entries are not sealed', async () => {
    const { commands, asked } = await forged({}, lies[name]!)
    const deposit = depositCommand({ store: 'response', sensitive: true })
    expect(await commands.run(deposit, asked)).toMatchObject({ status: 'executed', response: { balance: 5 } })
    expect(await commands.run(deposit, asked)).toMatchObject({ status: 'replayed', response: { balance: 5 }, from: 'marker' })
  })
})

test('entries of another secret count as nothing: the marker answers, and nothing happens twice', async () => {
  const { cache } = shared()
  const deposit = depositCommand({ store: 'response' })
  const asked = request()
  expect(await commandsWith({ cache, cacheSecret }).run(deposit, asked)).toMatchObject({ status: 'executed' })
  const rotated = commandsWith({ cache, cacheSecret: 'AAECAwQFBgcICQoLDA0ODw8ODQwLCgkI' })
  expect(await rotated.run(deposit, asked)).toMatchObject({ status: 'replayed', from: 'marker' })
  expect(await rotated.run(deposit, asked)).toMatchObject({ status: 'replayed', from: 'cache' })
  expect(await bank.effects(asked.requestId)).toBe(1)
})

test('a pending entry ends by the time in it, not by that of the cache', async () => {
  const { commands, asked } = await forged({}, (fingerprint) => ({
    state: 'pending',
    fingerprint,
    token: 'x',
    aliveAtMs: Date.now() - 600_000,
  }))
  const deposit = depositCommand()
  expect(await commands.run(deposit, asked)).toMatchObject({ status: 'executed' })
  expect(await commands.run(deposit, asked)).toMatchObject({ status: 'replayed', from: 'cache' })
})

test.each([
  { response: '{not json' },
  { response: { a: 1 } },
  { response: '{}', token: 'x\r\nSet-Cookie: a=b' },
  { rejected: true, response: 'null' },
  { rejected: true, response: '{"status":"executed","reason":"x"}' },
])('an entry of a wrong shape is nothing, and over HTTP no error: %j', async (wrong) => {
  const { commands, asked } = await forged({}, (fingerprint) => ({ state: 'completed', fingerprint, rejected: false, ...wrong }))
  const handler = fetchCommand(commands, depositCommand(), { principal: () => 'ann' })
  const answer = await handler(
    new Request('http://bank/', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': asked.requestId },
      body: JSON.stringify(asked.input),
    }),
  )
  expect([answer.status, answer.headers.get('set-cookie'), await answer.json()]).toMatchObject([200, null, { balance: 5 }])
})

test('a secret that can be guessed is refused, and a shared cache without one is told of once', async () => {
  expect(() => commandsWith({ cacheSecret: 'a'.repeat(40) })).toThrow(/commands\.cacheSecret: .*128 bits/)
  const { signals, all } = heard('command.cache-unsealed')
  const commands = commandsWith({ cache: shared().cache, signals })
  for (let times = 0; times < 2; times += 1) await commands.run(depositCommand({ name: `Told${times}` }), request())
  expect(all).toHaveLength(1)
})
