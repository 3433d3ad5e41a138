import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'

import { afterAll, beforeAll, expect, test } from 'vitest'

import { eventually } from '../kit/eventually.ts'
import { startRedis } from './redis.ts'
import type { Redis } from './redis.ts'

let redis: Redis
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

async function ask(command: string): Promise<string> {
  const socket = connect(redis.port, redis.host)
  socket.write(`${command}\r\n`)
  const [reply] = (await once(socket, 'data')) as [Buffer]
  socket.destroy()
  return reply.toString().trim()
}

test('a flush makes Redis forget', async () => {
  expect(await ask('SET key value')).toBe('+OK')
  await redis.flush()
  expect(await ask('GET key')).toBe('$-1')
})

test('a frozen Redis takes connections and answers nobody until it is thawed', async () => {
  redis.freeze()
  await eventually(() => execFileSync('ps', ['-o', 'state=', '-p', String(redis.pid)], { encoding: 'utf8' }).startsWith('T'))
  const answer = ask('PING')
  redis.thaw()
  expect(await answer).toBe('+PONG')
})

test('a killed Redis refuses connections', async () => {
  await redis.kill()
  await expect(ask('PING')).rejects.toThrow('ECONNREFUSED')
})
