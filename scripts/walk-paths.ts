/**
 * Walks five paths through the sources in real runs, on a PostgreSQL and a Pub/Sub server of their own, and prints them as JSON: what
 * `npm run map` shows. `--root <folder>` walks another copy of the tree.
 */
import { tmpdir, userInfo } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import type { Consumer, SignalBus, SignalName, Transport } from 'waybill'
import type { PubsubAdmin } from 'waybill/pubsub'
import { z } from 'zod'
import type { runCli } from '../src/cli/run-cli.ts'
import { repositoryRoot } from './run-command.ts'
import { traceSources, walk, type Walk } from './trace-calls.ts'

const { values: options } = parseArgs({ options: { root: { type: 'string' } } })
const root = resolve(options.root ?? repositoryRoot)
traceSources(root)

const {
  command,
  connect,
  createCommands,
  createConsumer,
  createOutbox,
  createRelay,
  createSignals,
  memory,
  memoryCache,
  migrate,
  run,
  state,
  stream,
  transaction,
} = await import('waybill')
const { startPostgres, startPubsubServer } = await import('waybill/testing')
const { createPubsubAdmin, pubsub } = await import('waybill/pubsub')
const { fetchCommand } = await import('waybill/fetch')

const orders = stream('order', { topic: 'order.events', events: { OrderPlaced: state(z.object({ total: z.number() })) } })
const postgres = await startPostgres()
const db = connect({ url: postgres.url })
const broker = await startPubsubServer()
const outbox = createOutbox()
const paths: Record<string, Walk> = {}
await prepare()
paths['add'] = await walk(async () => await place('a'))
const cloud = pubsub({ projectId: 'map', emulatorHost: broker.emulatorHost })
const relay = createRelay({ db, outbox, transport: cloud })
await place('b')
paths['relay'] = await walk(async () => void (await relay.once()))
paths['consume'] = await consume()
paths['whole chain'] = await wholeChain()
paths['command'] = await overFetch()
paths['redrive'] = await redrive()
console.log(JSON.stringify(paths))
await cloud.close()
await db.close()
await broker.stop()
await postgres.stop()
// Clients of Google's keep timers.
process.exit(0)

async function prepare(): Promise<void> {
  await migrate(db, { schema: 'waybill', service: 'shop', deploymentId: 'map' })
  await db.query(`create table shipment (order_id text primary key, total int, version bigint not null, deleted_at timestamptz)`)
  await db.query(`create table applied (event_id uuid)`)
  await provision(async (admin) => await admin.createTopic({ name: 'order.events', retentionSeconds: 0, schema: undefined }))
}

async function subscribe(): Promise<void> {
  const unset = { filter: undefined, retry: undefined, deadLetter: undefined }
  const kept = {
    retentionSeconds: 86_400,
    isRetainingAcked: false,
    isOrdered: true,
    isExactlyOnce: false,
    expiresAfterSeconds: 0,
  }
  const named = { name: 'order.events.chain', topic: 'order.events', ackDeadlineSeconds: 15 }
  await provision(async (admin) => await admin.createSubscription({ ...named, ...kept, ...unset }))
}

async function provision(work: (admin: PubsubAdmin) => Promise<void>): Promise<void> {
  const admin = createPubsubAdmin({ projectId: 'map', emulatorHost: broker.emulatorHost })
  await work(admin)
  await admin.close()
}

async function place(id: string): Promise<void> {
  await transaction(db, async (tx) => {
    await outbox.add(tx, orders.OrderPlaced, id, { total: 30 })
  })
}

/** One new event for a consumer with a handler, from the memory broker to the ack. */
async function consume(): Promise<Walk> {
  const [source, transport] = [memory(), memory()]
  await place('c')
  await createRelay({ db, outbox, transport: source }).once()
  const { signals, consumer } = reader('reader', transport)
  consumer.on(orders.OrderPlaced, async (event, { tx }) => {
    await tx.query('insert into applied (event_id) values ($1)', [event.id])
  })
  const publish = async (): Promise<unknown> =>
    await transport.publish(source.published, { signal: AbortSignal.timeout(30_000), maySend: () => true })
  return await during(consumer, async () => await walk(async () => await ended(signals, 'consumer.applied', publish)))
}

/** One event from the outbox through Pub/Sub into a projection and a handler. */
async function wholeChain(): Promise<Walk> {
  const { signals, consumer } = reader('chain', cloud)
  consumer.project(orders, { table: 'public.shipment', key: 'order_id', set: (event) => ({ total: event.data.total }) })
  consumer.on(orders.OrderPlaced, async (event, { tx }) => {
    await tx.query('insert into applied (event_id) values ($1)', [event.id])
  })
  const chained = createRelay({ db, outbox, transport: cloud })
  await subscribe()
  await place('d')
  return await during(consumer, async () => {
    return await walk(async () => await ended(signals, 'consumer.applied', async () => await chained.once()))
  })
}

/** A request with a body, until the answer is in the cache. */
async function overFetch(): Promise<Walk> {
  const deposit = command('Deposit', {
    input: z.object({ order: z.string(), total: z.number() }),
    aggregate: ({ order }) => ({ type: orders.aggregateType, id: order }),
    execute: async (_tx, { order, total }, { emit }) => {
      emit(orders.OrderPlaced, order, { total })
      return { total }
    },
    store: 'response',
  })
  const commands = createCommands({ db, outbox, cache: memoryCache() })
  const handler = fetchCommand(commands, deposit, { principal: (request) => request.headers.get('x-user') ?? undefined })
  const send = async (id: string): Promise<void> => {
    const headers = { 'content-type': 'application/json', 'idempotency-key': `"${id}"`, 'x-user': 'ada' }
    const body = JSON.stringify({ order: id, total: 7 })
    const response = await handler(new Request('http://localhost/deposit', { method: 'POST', headers, body }))
    if (response.status !== 200) throw new Error(`The command was answered with ${response.status}: ${await response.text()}`)
    await delay(50)
  }
  // The first asks once whose database it is.
  await send('first')
  return await walk(async () => await send('second'))
}

/** A dead letter, from the words of the command line to its row. */
async function redrive(): Promise<Walk> {
  const [source, transport] = [memory(), memory()]
  await place('f')
  await createRelay({ db, outbox, transport: source }).once()
  const { signals, consumer } = reader('failing', transport)
  consumer.on(orders.OrderPlaced, async () => {
    throw new Error('never')
  })
  const publish = async (): Promise<unknown> =>
    await transport.publish(source.published, { signal: AbortSignal.timeout(30_000), maySend: () => true })
  await during(consumer, async () => await ended(signals, 'consumer.dead', publish))
  const program = (await import(pathToFileURL(join(root, 'src/cli/run-cli.ts')).href)) as { readonly runCli: typeof runCli }
  let said = ''
  const say = (text: string): void => void (said += text)
  return await walk(async () => {
    const code = await program.runCli({
      line: ['dlq', 'redrive', '--all', '--why', 'map'],
      env: { DATABASE_URL: postgres.url },
      folder: tmpdir(),
      user: userInfo().username,
      out: say,
      err: say,
      stopSignal: () => new AbortController().signal,
    })
    if (code !== 0) throw new Error(`dlq redrive ended with ${code}: ${said}`)
  })
}

function reader(name: string, transport: Transport): { readonly signals: SignalBus; readonly consumer: Consumer } {
  const signals = createSignals()
  return { signals, consumer: createConsumer({ db, transport, name, streams: [orders], signals, maxAttempts: 1 }) }
}

/** Runs a consumer for as long as `work` takes; the work begins when the consumer has settled down. */
async function during<T>(consumer: Consumer, work: () => Promise<T>): Promise<T> {
  const stop = new AbortController()
  const running = run([consumer], { signal: stop.signal })
  await delay(500)
  const result = await work()
  stop.abort()
  await running
  return result
}

/** Does the work and waits for a signal, and for the ack that follows it. */
async function ended(signals: SignalBus, name: SignalName, work: () => Promise<unknown>): Promise<void> {
  const heard = Promise.withResolvers<void>()
  const off = signals.on(name, () => heard.resolve())
  await work()
  await heard.promise
  off()
  await delay(50)
}
