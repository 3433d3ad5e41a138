import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'

import { afterEach, beforeEach, expect, test } from 'vitest'

import { eventually } from '../kit/eventually.ts'
import { startFaultProxy } from './fault-proxy.ts'
import type { FaultProxy } from './fault-proxy.ts'

/** Everything an end of a connection has seen. */
class Watch {
  text = ''
  hasEnded = false
  readonly socket: Socket

  constructor(socket: Socket) {
    this.socket = socket
    socket.setNoDelay(true)
    socket.on('data', (chunk) => (this.text += chunk.toString()))
    socket.on('end', () => (this.hasEnded = true))
    socket.on('error', () => (this.hasEnded = true))
  }
}

const lines = () => {
  let rest = ''
  return (chunk: Buffer): Buffer[] => {
    const parts = (rest + chunk.toString()).split('\n')
    rest = parts.pop() ?? ''
    return parts.map((part) => Buffer.from(`${part}\n`))
  }
}

let server: Server
let served: Watch[]
let proxy: FaultProxy
const sockets: Socket[] = []

beforeEach(async () => {
  served = []
  // Answers each line with a copy in capitals.
  server = createServer({ allowHalfOpen: true }, (socket) => {
    served.push(new Watch(socket))
    sockets.push(socket)
    socket.on('data', (chunk) => socket.write(chunk.toString().toUpperCase()))
    socket.on('end', () => socket.end())
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  proxy = await startFaultProxy({ target: { host: '127.0.0.1', port: (server.address() as AddressInfo).port }, frames: lines })
})
afterEach(async () => {
  await proxy.stop()
  for (const socket of sockets.splice(0)) socket.destroy()
  server.close()
})

async function open(): Promise<Watch> {
  const client = new Watch(connect(proxy.port, proxy.host))
  sockets.push(client.socket)
  await once(client.socket, 'connect')
  return client
}

async function openAndGreet(): Promise<Watch> {
  const client = await open()
  client.socket.write('hi\n')
  await eventually(() => client.text === 'HI\n')
  return client
}

test('without faults everything passes both ways, the end of a connection too', async () => {
  const client = await open()
  const long = `${'x'.repeat(300_000)}\n`
  client.socket.write(`one\ntw`)
  client.socket.write(`o\n${long}`)
  client.socket.end()
  await eventually(() => client.hasEnded)
  expect(client.text).toBe(`ONE\nTWO\n${long.toUpperCase()}`)
  await eventually(() => proxy.connections === 0)
})

test('an address is turned into the one that leads through the proxy', () => {
  expect(proxy.url('postgres://me@db.example:5432/app?x=1')).toBe(`postgres://me@127.0.0.1:${proxy.port}/app?x=1`)
})

test('a cut at a byte lets exactly that many bytes through, and counts', async () => {
  proxy.arm({ name: 'byte', direction: 'toServer', on: { byte: 7 }, action: 'cut' })
  const client = await open()
  expect(proxy.firings('byte')).toBe(0)
  client.socket.write('four\nfive\nsix\n')
  await proxy.fired('byte')
  await eventually(() => client.hasEnded && served[0]?.hasEnded)
  expect(served[0]?.text).toBe('four\nfi')
  expect(proxy.firings('byte')).toBe(1)
})

test('a cut after N messages lets exactly N through, once unless told otherwise', async () => {
  proxy.arm({ name: 'two', direction: 'toServer', on: { messages: 2 }, action: 'cut', times: 2 })
  for (const round of [1, 2]) {
    const client = await open()
    client.socket.write('a\nb\nc\nd\n')
    await eventually(() => client.hasEnded && proxy.firings('two') === round)
    await eventually(() => served[round - 1]?.text === 'a\nb\n')
  }
  const third = await open()
  third.socket.write('a\nb\nc\nd\n')
  await eventually(() => third.text === 'A\nB\nC\nD\n')
  expect(proxy.firings('two')).toBe(2)
})

test('a message can be cut before it, after it, or when its answer comes', async () => {
  const match = (message: Buffer): boolean => message.toString() === 'commit\n'
  for (const [action, seen] of [
    ['cut', 'begin\n'],
    ['cut-after', 'begin\ncommit\n'],
    ['cut-reply', 'begin\ncommit\n'],
  ] as const) {
    proxy.arm({ name: action, direction: 'toServer', on: { match }, action })
    const client = await open()
    client.socket.write('begin\n')
    await eventually(() => client.text === 'BEGIN\n')
    client.socket.write('commit\n')
    await proxy.fired(action)
    await eventually(() => client.hasEnded && served.at(-1)?.hasEnded)
    expect(served.at(-1)?.text).toBe(seen)
    expect(client.text).toBe('BEGIN\n')
  }
})

test('a stalling rule leaves the connection open and silent', async () => {
  proxy.arm({ name: 'quiet', direction: 'toClient', on: { match: (m) => m.toString() === 'B\n' }, action: 'stall' })
  const client = await open()
  client.socket.write('a\nb\nc\n')
  await proxy.fired('quiet')
  await eventually(() => served[0]?.text === 'a\nb\nc\n')
  const other = await openAndGreet()
  expect([client.text, client.hasEnded, other.text]).toEqual(['A\n', false, 'HI\n'])
})

test('a disarmed rule does not fire, and a name is armed once at a time', async () => {
  const rule = { name: 'x', direction: 'toServer', on: { messages: 1 }, action: 'cut' } as const
  proxy.arm(rule)
  expect(() => proxy.arm(rule)).toThrow('armed already')
  proxy.disarm('x')
  await openAndGreet()
  expect(proxy.firings('x')).toBe(0)
})

test('a half-open connection tells neither side anything, and delivers all when healed', async () => {
  const client = await openAndGreet()
  proxy.stall()
  client.socket.write('held\n')
  client.socket.end()
  // A connection that is made later is accepted and just as silent.
  const later = await open()
  later.socket.write('held too\n')
  await eventually(() => served.length === 2)
  expect(served.map((each) => [each.text, each.hasEnded])).toEqual([
    ['hi\n', false],
    ['', false],
  ])
  proxy.heal()
  await eventually(() => client.hasEnded && later.text === 'HELD TOO\n')
  expect(client.text).toBe('HI\nHELD\n')
})

test('dropped bytes are gone for good, in the chosen direction alone', async () => {
  const client = await openAndGreet()
  proxy.drop('toServer')
  client.socket.write('lost\n')
  // What the server says by itself still arrives, and proves that the proxy had its turn.
  served[0]?.socket.write('NEWS\n')
  await eventually(() => client.text === 'HI\nNEWS\n')
  const witness = await open()
  witness.socket.write('lost too\n')
  await eventually(() => served.length === 2)
  served[1]?.socket.write('NEWS\n')
  await eventually(() => witness.text === 'NEWS\n')
  proxy.heal()
  client.socket.write('kept\n')
  await eventually(() => client.text === 'HI\nNEWS\nKEPT\n')
  expect(served[0]?.text).toBe('hi\nkept\n')
})

test('a delay keeps the order and comes before nothing', async () => {
  const client = await openAndGreet()
  const startedAt = performance.now()
  proxy.delay(40, 'toServer')
  client.socket.write('a\nb\n')
  client.socket.write('c\n')
  await eventually(() => client.text === 'HI\nA\nB\nC\n', { intervalMs: 1 })
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(39)
})

test('a refusing proxy resets newcomers and keeps whom it has', async () => {
  const client = await openAndGreet()
  proxy.refuse()
  const newcomer = new Watch(connect(proxy.port, proxy.host))
  sockets.push(newcomer.socket)
  await eventually(() => newcomer.hasEnded)
  expect(proxy.refused).toBe(1)
  client.socket.write('still\n')
  await eventually(() => client.text === 'HI\nSTILL\n')
  proxy.heal()
  await openAndGreet()
})

test('an answer that is held is counted, and lost for good when the connection is cut', async () => {
  const client = await openAndGreet()
  expect(proxy.waiting('toClient')).toBe(0)
  proxy.stall('toClient')
  client.socket.write('lost\n')
  await eventually(() => proxy.waiting('toClient') === 1)
  proxy.cut()
  proxy.heal()
  await eventually(() => client.hasEnded)
  expect([client.text, served[0]?.text]).toEqual(['HI\n', 'hi\nlost\n'])
})

test('cutting ends every connection at once', async () => {
  const clients = [await openAndGreet(), await openAndGreet()]
  expect(proxy.connections).toBe(2)
  proxy.cut()
  await eventually(() => clients.every((client) => client.hasEnded) && served.every((each) => each.hasEnded))
  await eventually(() => proxy.connections === 0)
})

test('a target that refuses is a connection that ends', async () => {
  server.close()
  const client = await open()
  await eventually(() => client.hasEnded)
})
