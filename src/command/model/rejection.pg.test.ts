import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { commandSetup, heard } from '../../../test/command/command-setup.ts'
import { command } from './command.ts'
import { memoryCache } from '../cache/memory.ts'
import { httpAnswer, rpcStatus } from '../http-status.ts'
import { reject } from './rejection.ts'

const { db, commandsWith, newRequest } = await commandSetup()

const rejecting = (name: string, details: Readonly<Record<string, unknown>>) =>
  command(name, {
    input: z.number(),
    storeRejections: true,
    execute: async (): Promise<never> => {
      throw reject('poor', details)
    },
  })

const markers = async (requestId: string): Promise<number> => {
  const { rows } = await db.query('select from waybill.command_marker where request_id = $1', [requestId])
  return rows.length
}

test('a rejection with a bigint is told to everybody alike: its digits, over HTTP and gRPC, first and repeated', async () => {
  const poor = rejecting('Poor', { have: 3n, at: new Date(0) })
  const cache = memoryCache()
  for (const commands of [commandsWith(), commandsWith({ cache })]) {
    const request = { principal: 'ann', requestId: newRequest(), input: 1 }
    const first = await commands.run(poor, request)
    expect(first).toEqual({
      status: 'rejected',
      reason: 'poor',
      details: { have: '3', at: '1970-01-01T00:00:00.000Z' },
      replayed: false,
    })
    expect(await commands.run(poor, request)).toEqual({ ...first, replayed: true })
    expect(JSON.stringify(httpAnswer(first).body)).toContain('"have":"3"')
    expect(rpcStatus(first)?.metadata).toEqual({ have: '3', at: '1970-01-01T00:00:00.000Z' })
  }
})

describe('a rejection that cannot be carried', () => {
  const cyclic: Record<string, unknown> = {}
  cyclic['self'] = cyclic

  test.each([
    ['a cycle', cyclic],
    ['a number that is none', { have: Number.NaN }],
    ['a Map', { have: new Map([['gold', 1]]) }],
    ['17 MB', { text: 'x'.repeat(17_000_000) }],
  ])('is refused where it is made, with a sentence, and nothing of it is kept: %s', async (what, details) => {
    const commands = commandsWith()
    const bad = rejecting(`Bad${what.replaceAll(' ', '-')}`, details)
    const requestId = newRequest()
    for (let times = 0; times < 2; times += 1)
      await expect(commands.run(bad, { principal: 'ann', requestId, input: 1 })).rejects.toMatchObject({
        code: 'INVALID_INPUT',
        message: expect.stringMatching(/^reject\("poor"\): details/),
      })
    expect(await markers(requestId)).toBe(0)
  })
})

test('a kept rejection is bounded as a response is: a repeat is told the reason without the details', async () => {
  const { signals, all } = heard('command.response-dropped')
  const long = rejecting('Long', { text: 'é'.repeat(1_000) })
  for (const cache of [undefined, memoryCache()]) {
    const commands = commandsWith({ maxResponseBytes: 1_000, signals, cache })
    const request = { principal: 'ann', requestId: newRequest(), input: 1 }
    expect(await commands.run(long, request)).toMatchObject({ details: { text: 'é'.repeat(1_000) }, replayed: false })
    expect(await commands.run(long, request)).toEqual({ status: 'rejected', reason: 'poor', details: {}, replayed: true })
    const { rows } = await db.query('select octet_length(response) as n from waybill.command_marker where request_id = $1', [
      request.requestId,
    ])
    expect(rows).toEqual([{ n: '{"reason":"poor","details":{}}'.length }])
  }
  expect(all).toEqual(Array.from({ length: 2 }, () => ({ command: 'Long', bytes: 2_039, maxBytes: 1_000 })))
})

test('a response that JSON would change is refused inside the transaction, by its path', async () => {
  const lossy = command('Lossy', {
    input: z.number(),
    store: 'response',
    execute: async () => ({ rows: [{ total: Number.NaN }] }),
  })
  const requestId = newRequest()
  await expect(commandsWith().run(lossy, { principal: 'ann', requestId, input: 1 })).rejects.toMatchObject({
    code: 'INVALID_INPUT',
    message: 'Lossy: the response.rows[0].total is NaN, which JSON cannot hold.',
  })
  expect(await markers(requestId)).toBe(0)
})
