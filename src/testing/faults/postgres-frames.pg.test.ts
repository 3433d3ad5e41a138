import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'

import { testDatabase } from '../../../test/setup/test-database.ts'
import { startFaultProxy } from './fault-proxy.ts'
import type { FaultProxy } from './fault-proxy.ts'
import { isCommitReply, isCommitRequest, isStatement, postgresFrames } from './postgres-frames.ts'

const db = await testDatabase()
let proxy: FaultProxy

beforeAll(async () => {
  const { hostname, port } = new URL(db.url)
  proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
  await db.pool.query('create table payment (id int)')
})
afterAll(() => proxy.stop())

/** Pays through the proxy and tells how the client saw it end. */
async function pay(id: number, commit: pg.QueryConfig = { text: 'commit' }): Promise<string> {
  const client = new pg.Client({ connectionString: proxy.url(db.url) })
  client.on('error', () => {})
  await client.connect()
  try {
    await client.query('begin')
    await client.query('insert into payment values ($1)', [id])
    await client.query(commit)
    await client.end()
    return 'committed'
  } catch (error) {
    return String(error)
  }
}

const isPaid = async (id: number): Promise<boolean> =>
  (await db.pool.query('select from payment where id = $1', [id])).rowCount === 1

test('a commit passes the proxy when no rule is armed', async () => {
  expect(await pay(1)).toBe('committed')
  expect(await isPaid(1)).toBe(true)
})

test('a commit whose reply is cut has happened, although the client saw the connection break', async () => {
  proxy.arm({ name: 'reply lost', direction: 'toClient', on: { match: isCommitReply }, action: 'cut' })
  expect(await pay(2)).toContain('Connection terminated')
  expect(proxy.firings('reply lost')).toBe(1)
  expect(await isPaid(2)).toBe(true)
})

test('a commit that is cut on its way has not happened, and the client saw the same', async () => {
  proxy.arm({ name: 'request lost', direction: 'toServer', on: { match: isCommitRequest }, action: 'cut' })
  expect(await pay(3)).toContain('Connection terminated')
  expect(proxy.firings('request lost')).toBe(1)
  expect(await isPaid(3)).toBe(false)
})

test('a commit in the extended protocol is recognised too', async () => {
  const commit = { text: 'COMMIT', values: [], queryMode: 'extended' }
  proxy.arm({ name: 'extended', direction: 'toServer', on: { match: isCommitRequest }, action: 'cut-reply' })
  expect(await pay(4, commit)).toContain('Connection terminated')
  expect(proxy.firings('extended')).toBe(1)
  expect(await isPaid(4)).toBe(true)
})

test('a chosen statement can be hit', async () => {
  proxy.arm({ name: 'insert', direction: 'toServer', on: { match: isStatement(/^insert into payment/) }, action: 'cut' })
  expect(await pay(5)).toContain('Connection terminated')
  expect(proxy.firings('insert')).toBe(1)
})

test('messages are the same bytes however the network splits them', () => {
  const query = (text: string): Buffer => {
    const body = Buffer.from(`${text}\0`)
    const head = Buffer.alloc(5)
    head.write('Q')
    head.writeUInt32BE(body.length + 4, 1)
    return Buffer.concat([head, body])
  }
  const startUp = Buffer.from([0, 0, 0, 8, 0, 3, 0, 0])
  const tls = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47])
  const messages = [tls, startUp, query('begin'), query('x'.repeat(1_000)), query('commit')]
  const whole = Buffer.concat(messages)
  for (const size of [1, 3, 7, whole.length]) {
    const frame = postgresFrames('toServer')
    const seen: Buffer[] = []
    for (let at = 0; at < whole.length; at += size) seen.push(...frame(whole.subarray(at, at + size)))
    expect(seen).toEqual(messages)
  }
  const answers = [Buffer.from('N'), Buffer.from([82, 0, 0, 0, 8, 0, 0, 0, 0])]
  expect(postgresFrames('toClient')(Buffer.concat(answers))).toEqual(answers)
})
