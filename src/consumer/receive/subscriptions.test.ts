import { expect, test } from 'vitest'
import type { Receiver } from '../../transport/port/transport.ts'
import { openAll } from './subscriptions.ts'

const going = new AbortController().signal

function receiver(): Receiver & { readonly closed: boolean } {
  const state = { closed: false }
  return {
    get closed() {
      return state.closed
    },
    close: async () => void (state.closed = true),
  }
}

test('receivers are opened all or none: when one fails, the others are closed', async () => {
  const [one, other] = [receiver(), receiver()]
  expect(await openAll([Promise.resolve(one), Promise.resolve(other)], going)).toEqual([one, other])
  const late = Promise.withResolvers<Receiver>()
  const opening = openAll([Promise.reject(new Error('no such topic')), late.promise], going)
  late.resolve(other)
  await expect(opening).rejects.toThrow('no such topic')
  expect([one.closed, other.closed]).toEqual([false, true])
})

test('a stop does not wait for a broker that is out of reach, and what opens later is closed', async () => {
  const stop = new AbortController()
  const late = Promise.withResolvers<Receiver>()
  const known = receiver()
  const opening = openAll([Promise.resolve(known), new Promise(() => {}), late.promise], stop.signal)
  stop.abort()
  expect(await opening).toEqual([])
  const one = receiver()
  late.resolve(one)
  await Promise.resolve().then(() => new Promise((turn) => setImmediate(turn)))
  expect([known.closed, one.closed]).toEqual([true, true])
})
