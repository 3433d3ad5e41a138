import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { IncomingMessage } from '../../port/transport.ts'
import { fromRecord } from '../client/wire/event-records.ts'
import { PartitionWindow, type WindowEntry } from './partition-window.ts'

function messages(keys: readonly (string | undefined)[], start = 0): Parameters<PartitionWindow['append']>[0] {
  return keys.map((orderingKey, i) => {
    const offset = BigInt(start + i)
    const message: IncomingMessage = {
      messageId: `0:${offset}`,
      topic: 't',
      orderingKey,
      attributes: {},
      body: new Uint8Array(0),
      publishedAtMs: 0,
      deliveryAttempt: undefined,
    }
    return { message, offset, bytes: 10 }
  })
}

test('only what is settled without a gap may be committed', () => {
  const window = new PartitionWindow(0, 100n)
  window.append(messages(['a', 'b', 'c'], 100), 103n)
  const [first, second, third] = [window.take(), window.take(), window.take()] as [WindowEntry, WindowEntry, WindowEntry]
  window.settle(third)
  window.settle(second)
  expect(window.position).toBe(100n)
  window.settle(first)
  expect(window.position).toBe(103n)
})

test('offsets that were compacted away need no settling', () => {
  const window = new PartitionWindow(0, 0n)
  window.append([...messages(['a'], 3), ...messages(['b'], 9)], 20n)
  expect(window.position).toBe(3n)
  window.settle(window.take() as WindowEntry)
  expect(window.position).toBe(9n)
  window.settle(window.take() as WindowEntry)
  expect(window.position).toBe(20n)
})

test('a record that was given back holds its key and nothing else, until its time has come', () => {
  const window = new PartitionWindow(0, 0n)
  window.append(messages(['a', 'b', 'a', 'a', 'b']), 5n)
  const [a0, b1, a2] = [window.take(), window.take(), window.take()] as [WindowEntry, WindowEntry, WindowEntry]
  expect(window.giveBack(a0, 50)).toEqual([a2])
  expect(window.isHeld).toBe(true)
  expect(window.take()?.offset).toBe(4n)
  expect(window.take()).toBeUndefined()
  window.settle(b1)
  window.release(49)
  expect(window.take()).toBeUndefined()
  window.release(50)
  expect([window.take(), window.take(), window.take()].map((entry) => entry?.offset)).toEqual([0n, 2n, 3n])
})

test('giving back looks at its own key only, however many others are in hand', () => {
  let looks = 0
  const counted = messages(Array.from({ length: 1_000 }, (_, i) => `k${i}`)).map(
    ({ message: { orderingKey, ...rest }, ...each }) => {
      const message: IncomingMessage = {
        ...rest,
        get orderingKey() {
          looks += 1
          return orderingKey
        },
      }
      return { ...each, message }
    },
  )
  const window = new PartitionWindow(0, 0n)
  window.append(counted, 1_000n)
  const entries = counted.map(() => window.take() as WindowEntry)
  looks = 0
  for (const entry of entries) window.giveBack(entry, 50)
  expect(looks).toBeLessThan(10 * 1_000)
})

test('nothing is due before the first of those that were given back', () => {
  const window = new PartitionWindow(0, 0n)
  window.append(messages(['a', 'b', 'b']), 3n)
  expect(window.dueMs).toBe(Infinity)
  const [a0, b1, b2] = [window.take(), window.take(), window.take()] as [WindowEntry, WindowEntry, WindowEntry]
  window.giveBack(a0, 70)
  window.giveBack(b2, 50)
  expect(window.dueMs).toBe(50)
  window.giveBack(b1, 60)
  window.release(50)
  expect([window.take(), window.dueMs]).toEqual([undefined, 60])
  window.release(60)
  expect([window.take()?.offset, window.take()?.offset, window.dueMs]).toEqual([1n, 2n, 70])
  window.release(70)
  expect([window.take()?.offset, window.dueMs]).toEqual([0n, Infinity])
})

/** A window of a hundred records, the first held and the others settled, and what tells which of the messages are still there. */
function heldInFront(): { readonly window: PartitionWindow; readonly refs: readonly WeakRef<IncomingMessage>[] } {
  const window = new PartitionWindow(0, 0n)
  const given = messages(Array.from({ length: 100 }, (_, i) => `k${i}`))
  window.append(given, 100n)
  const [first, ...others] = given.map(() => window.take() as WindowEntry) as [WindowEntry, ...WindowEntry[]]
  window.giveBack(first, 50)
  for (const entry of others) window.settle(entry)
  return { window, refs: given.map(({ message }) => new WeakRef(message)) }
}

test('what is settled is let go, also behind a record that is held', async () => {
  const { window, refs } = heldInFront()
  setFlagsFromString('--expose-gc')
  // What a WeakRef was made of stays until the turn is over.
  await new Promise((done) => setImmediate(done))
  runInNewContext('gc')()
  expect([window.position, window.size]).toEqual([0n, 100])
  expect(refs.filter((ref) => ref.deref() !== undefined).length).toBeLessThan(10)
})

/** Takes, settles and gives back by chance; what is left at the end is worked off. */
test('whatever is taken, settled and given back: keys keep their order, and the position is the first that is not settled', () => {
  const keys = fc.array(fc.option(fc.constantFrom('a', 'b', 'c'), { nil: undefined }), { minLength: 1, maxLength: 40 })
  fc.assert(
    fc.property(keys, fc.array(fc.nat(100), { maxLength: 120 }), (given, choices) => {
      const window = new PartitionWindow(0, 0n)
      window.append(messages(given), BigInt(given.length))
      const inHand: WindowEntry[] = []
      const settled = new Set<bigint>()
      let clock = 0
      const take = (): void => {
        const entry = window.take()
        if (entry === undefined) return
        const key = entry.message.orderingKey
        const earlier = given.flatMap((each, i) => (key !== undefined && each === key && i < entry.offset ? [BigInt(i)] : []))
        // Nothing of its key that came earlier is unsettled and out of hand.
        const passedOver = earlier.filter((each) => !settled.has(each) && !inHand.some(({ offset }) => offset === each))
        expect(passedOver).toEqual([])
        inHand.push(entry)
      }
      const settle = (place: number): void => {
        const [entry] = inHand.splice(place % inHand.length, 1) as [WindowEntry]
        window.settle(entry)
        settled.add(entry.offset)
      }
      for (const choice of choices) {
        clock += 1
        if (choice < 40 || inHand.length === 0) take()
        else if (choice < 75) settle(choice)
        else if (choice < 90) {
          const [entry] = inHand.splice(choice % inHand.length, 1) as [WindowEntry]
          for (const lost of window.giveBack(entry, clock + 5)) inHand.splice(inHand.indexOf(lost), 1)
        } else window.release(clock)
        const unsettled = given.findIndex((_, offset) => !settled.has(BigInt(offset)))
        expect(window.position).toBe(BigInt(unsettled === -1 ? given.length : unsettled))
      }
      window.release(clock + 100)
      for (let rounds = 0; rounds <= given.length; rounds += 1) take()
      while (inHand.length > 0) settle(0)
      expect(window.position).toBe(BigInt(given.length))
      expect([window.waitingBytes, window.heldBytes, window.size]).toEqual([0, 0, 0])
    }),
  )
})

test('a record that is held keeps itself and not the answer that it came in', () => {
  const answer = Buffer.alloc(1_000_000, 'x')
  const record = { timestampMs: 7, headers: [['name', 'a'] as const] }
  const window = new PartitionWindow(0, 0n)
  const append = (offset: bigint, value: Buffer | null): void => {
    const fetched = { ...record, offset, key: answer.subarray(0, 3), value }
    window.append([{ offset, message: fromRecord(fetched, { topic: 't', partition: 0 }), bytes: 10 }], offset + 1n)
  }
  append(0n, answer.subarray(10, 110))
  append(1n, null)
  const [first, second] = [window.take(), window.take()] as [WindowEntry, WindowEntry]
  const before = [first, second].map(({ message }) => plain(message))
  window.giveBack(first, 0)
  expect(first.message.body.buffer.byteLength).toBe(100)
  // What made it out of the answer's bytes has them still.
  expect([first, second].map(({ message }) => Object.getPrototypeOf(message))).toEqual([Object.prototype, Object.prototype])
  expect([first, second].map(({ message }) => plain(message))).toEqual(before)
})

function plain({ messageId, topic, orderingKey, attributes, body, publishedAtMs, position }: IncomingMessage): object {
  return { messageId, topic, orderingKey, attributes, body: Buffer.from(body).toString(), publishedAtMs, position }
}
