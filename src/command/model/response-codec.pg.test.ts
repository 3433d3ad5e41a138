import { expect, test } from 'vitest'
import { depositCommand } from '../../../test/command/bank.ts'
import { commandSetup } from '../../../test/command/command-setup.ts'
import { WaybillError } from '../../core/errors.ts'
import { memoryCache } from '../cache/memory.ts'
import type { ResponseCodec, ResponseContext } from './response-codec.ts'

const { db, commandsWith, newAccount, newRequest } = await commandSetup()
const deposit = depositCommand({ store: 'response', storeRejections: true })

/** Turns texts around, and does what it is told to. */
function turning(
  answer: (text: string) => string | undefined = (text) => text,
): ResponseCodec & { readonly asked: ResponseContext[] } {
  const asked: ResponseContext[] = []
  const turned = (text: string): string => Array.from(text).toReversed().join('')
  return {
    asked,
    encode: (json, of) => {
      asked.push(of)
      return turned(json)
    },
    decode: async (text) => await Promise.resolve(answer(turned(text))),
  }
}

function request(amount = 5) {
  return { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount } }
}

test('answers and rejections are kept as the codec writes them, and repeats are told what they were', async () => {
  const codec = turning()
  const [cached, plain] = [commandsWith({ responses: codec, cache: memoryCache() }), commandsWith({ responses: codec })]
  for (const asked of [request(5), request(-5)]) {
    const first = await cached.run(deposit, asked)
    const { rows } = await db.query('select response from waybill.command_marker where request_id = $1', [asked.requestId])
    expect((rows[0] as { response: string }).response).toMatch(/\{$/)
    const again = await Promise.all([cached.run(deposit, asked), plain.run(deposit, asked)])
    const told = first.status === 'rejected' ? { reason: first.reason } : { response: (first as { response: unknown }).response }
    for (const each of again) expect(each).toMatchObject(told)
    expect(codec.asked.at(-1)).toEqual({ command: 'Deposit', principal: 'ann', requestId: asked.requestId })
  }
})

test('an answer that does not open any more is one that was not kept, and one whose key is away is for later', async () => {
  const shredded = (): undefined => undefined
  const changed = (): never => {
    throw new WaybillError('CORRUPT', 'It does not open.')
  }
  const away = (): never => {
    throw new WaybillError('UNAVAILABLE', 'The key service is away.', { retryable: true })
  }
  const [paid, refused] = [request(5), request(-5)]
  for (const asked of [paid, refused]) await commandsWith({ responses: turning() }).run(deposit, asked)
  for (const answer of [shredded, changed]) {
    const commands = commandsWith({ responses: turning(answer) })
    expect(await commands.run(deposit, paid)).toMatchObject({ status: 'failed', code: 'ALREADY_COMMITTED' })
    expect(await commands.run(deposit, refused)).toMatchObject({ status: 'rejected', reason: 'not-kept' })
  }
  expect(await commandsWith({ responses: turning(away) }).run(deposit, paid)).toMatchObject({
    status: 'failed',
    code: 'UNAVAILABLE',
  })
})

test('a codec that fails in the transaction rolls the command back, and after COMMIT it costs the cache its entry alone', async () => {
  let failAt = 1
  let calls = 0
  const failing: ResponseCodec = {
    encode: (json) => {
      calls += 1
      if (calls === failAt) throw new WaybillError('UNAVAILABLE', 'The key service is away.', { retryable: true })
      return json
    },
    decode: (text) => text,
  }
  const commands = commandsWith({ responses: failing, cache: memoryCache() })
  const asked = request()
  expect(await commands.run(deposit, asked)).toMatchObject({ status: 'failed', code: 'UNAVAILABLE' })
  ;[failAt, calls] = [2, 0]
  expect(await commands.run(deposit, asked)).toMatchObject({ status: 'executed', response: { balance: 5 } })
  expect(calls).toBe(2)
  expect(await commands.run(deposit, asked)).toMatchObject({ status: 'replayed', from: 'marker', response: { balance: 5 } })
})
