/**
 * docs/reference/options.md says that an option which does not exist is refused: by every function that the page lists, before it
 * does anything else.
 */
import { ValueSchema } from '@bufbuild/protobuf/wkt'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { optionFunctions } from '../../scripts/option-functions.ts'
import { loadConfig } from '../../src/config/config.ts'
import * as waybill from '../../src/index.ts'
import { avro } from '../../src/avro.ts'
import { createDashboard } from '../../src/dashboard/dashboard.ts'
import { kafka } from '../../src/kafka.ts'
import { markTx } from '../../src/postgres/query/database.ts'
import { pubsub } from '../../src/pubsub.ts'
import { protobuf } from '../../src/protobuf.ts'
import * as testing from '../../src/testing/index.ts'

const mustNotBeAsked = async (): Promise<never> => await Promise.reject(new Error('a statement was sent'))
const db = waybill.fromPg({ connect: mustNotBeAsked, query: mustNotBeAsked, totalCount: 0 })
const tx = markTx({ native: undefined, query: mustNotBeAsked })
const schema = z.object({ total: z.number() })
const orders = waybill.stream('order', { topic: 'order.events', events: { OrderPlaced: waybill.state(schema) } })
const outbox = waybill.createOutbox()
const transport = waybill.memory()
const consumer = waybill.createConsumer({ db, transport, name: 'shipping', streams: [orders] })
const client = waybill.createIngestClient({ url: 'http://localhost/orders' })
const ingest = waybill.createIngest({ event: orders.OrderPlaced, to: transport, key: () => 'o1' })
const place = waybill.command('Place', { input: schema, plan: () => Promise.resolve(1), execute: () => Promise.resolve() })
const event = waybill.event(orders.OrderPlaced, 'o1', { total: 1 })

/** As in a program that nobody compiled. */
type Call = (given: never) => unknown

const calls: Readonly<Record<string, Call | readonly Call[]>> = {
  defineConfig: asConfig,
  connect: waybill.connect,
  transaction: (given) => waybill.transaction(db, mustNotBeAsked, given),
  migrate: (given) => waybill.migrate(db, given),
  migrationStatus: [(given) => waybill.migrationStatus(db, given), (given) => waybill.pendingMigrations(db, given)],
  exportSql: waybill.exportSql,
  adoptDeployment: (given) => waybill.adoptDeployment(db, given),
  run: (given) => waybill.run([], given),
  stream: (given) => waybill.stream('order', given),
  'state, delta, tombstone': [
    (given) => waybill.state(schema, given),
    (given) => waybill.delta(schema, given),
    (given) => waybill.tombstone(schema, given),
  ],
  createTokens: waybill.createTokens,
  'createSigner, createVerifier': [waybill.createSigner, waybill.createVerifier],
  createOutbox: waybill.createOutbox,
  'outbox.add': (given) => outbox.add(tx, orders.OrderPlaced, 'o1', { total: 1 }, given),
  createRelay: waybill.createRelay,
  createOutboxRetention: waybill.createOutboxRetention,
  createBacklogReport: waybill.createBacklogReport,
  notifyAfterCommit: waybill.notifyAfterCommit,
  createBackfill: waybill.createBackfill,
  backfillTable: waybill.backfillTable,
  backfillFile: waybill.backfillFile,
  memory: waybill.memory,
  postgresTransport: (given: object) => waybill.postgresTransport({ db, ...given }),
  pubsub,
  kafka,
  createConsumer: waybill.createConsumer,
  'consumer.project': (given) => consumer.project(orders, given),
  'consumer.insert': (given) => consumer.insert(orders, given),
  'consumer.read, consumer.waitFor': [(given) => consumer.read(orders, 'o1', given), (given) => consumer.waitFor('', given)],
  processedBy: (given) => waybill.processedBy(db, 'catalog', given),
  createInboxRetention: waybill.createInboxRetention,
  showDeadLetter: (given) => waybill.showDeadLetter({ db, schema: 'waybill' }, '1', given),
  drainBrokerDeadLetters: waybill.drainBrokerDeadLetters,
  listRefused: waybill.listRefused,
  replayConsumer: waybill.replayConsumer,
  rebuild: waybill.rebuild,
  'listGaps, repairGap': [waybill.listGaps, waybill.repairGap],
  command: (given) => waybill.command('Place', given),
  'emit (of a command)': (given) => outbox.addMany(tx, [{ ...event, options: given }]),
  createCommands: waybill.createCommands,
  bulk: (given) => waybill.bulk('PlaceAll', place, given),
  lockAggregate: [
    (given) => waybill.lockAggregate(tx, { type: 'order', id: 'o1' }, given),
    (given) => waybill.lockAggregates(tx, [], given),
  ],
  createMarkerCleanup: waybill.createMarkerCleanup,
  memoryCache: waybill.memoryCache,
  'ioredisCache, nodeRedisCache': [
    (given) => waybill.ioredisCache({ eval: mustNotBeAsked }, given),
    (given) => waybill.nodeRedisCache({ eval: mustNotBeAsked }, given),
  ],
  createIngest: waybill.createIngest,
  'ingest.accept': [
    (given) => ingest.accept({ total: 1 }, given),
    (given) => ingest.acceptMany([], given),
    (given) => ingest.status('o1', given),
  ],
  createIngestClient: waybill.createIngestClient,
  'client.send': [
    (given) => client.send({}, given),
    (given) => client.sendMany([], given),
    (given) => client.processed('o1', given),
  ],
  jsonCodec: (given) => waybill.jsonCodec(schema, given),
  'protobuf (waybill/protobuf)': (given) => protobuf(ValueSchema, given),
  'avro (waybill/avro)': (given) => avro('int', given),
  claimCheck: (given) => waybill.claimCheck(waybill.jsonCodec(schema), given),
  fileBlobStore: waybill.fileBlobStore,
  postgresBlobStore: waybill.postgresBlobStore,
  createBlobRetention: waybill.createBlobRetention,
  status: waybill.status,
  trace: (given) => waybill.trace([], given),
  createHealth: waybill.createHealth,
  createDashboard,
  'services of createDashboard': (given) =>
    createDashboard({ services: [given], authorize: () => undefined, origin: 'http://ops' }),
  createMetrics: waybill.createMetrics,
  logSignals: waybill.logSignals,
  startTelemetryServer: waybill.startTelemetryServer,
  'startPostgres (waybill/testing)': testing.startPostgres,
  'startPubsubServer (waybill/testing)': testing.startPubsubServer,
  'createTestKit (waybill/testing)': testing.createTestKit,
  'drain (waybill/testing)': testing.drain,
}

test.each(optionFunctions.map(({ call }) => call))('an unknown option of %s is refused', async (name) => {
  for (const call of [calls[name] ?? []].flat()) {
    const refused = async (): Promise<unknown> => await call({ misspelt: 1 } as never)
    await expect(refused()).rejects.toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringContaining('.misspelt: unknown option.'),
    })
  }
})

test('every function of the page is called', () => {
  expect(Object.keys(calls)).toEqual(optionFunctions.map(({ call }) => call))
})

/** A configuration is refused when the command line loads it. */
async function asConfig(given: object): Promise<unknown> {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-config-'))
  try {
    await writeFile(join(folder, 'waybill.config.mjs'), `export default ${JSON.stringify(given)}`)
    return await loadConfig(folder, undefined)
  } finally {
    await rm(folder, { recursive: true })
  }
}
