/**
 * Snippets of pages as files of a folder that is compiled as a user's project would be: by the public names of the package.
 *
 * A snippet of a guide may begin in the middle of things. What it may take for granted is in `given`: a service with a
 * database, an outbox, a few streams. Public names need no import in a guide, as long as they exist; in the README and in the
 * quick start nothing is given at all.
 */
import { mkdir, mkdtemp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { repositoryRoot } from '../../scripts/run-command.ts'

/** What guides take for granted, as the declarations of a service that they could be part of. */
const given = `
  import type { Connection, Consumer, Outbox, Relay, Transport } from 'waybill'
  import type { FastifyInstance } from 'fastify'
  import type { Pool } from 'pg'

  import type { Server } from '@grpc/grpc-js'
  import type { DescMessage } from '@bufbuild/protobuf'
  import type { Added, BlobStore, Commands, Command, Handler, MemoryTransport, SignalBus, Tx } from 'waybill'
  import type { TestKit } from 'waybill/testing'

  const videoSchema = z.object({ title: z.string(), url: z.string().optional() })
  const orderSchema = z.object({ total: z.number() })
  const readingSchema = z.object({ meter: z.string(), at: z.number(), value: z.number() })
  const given = {
    videos: waybill.stream('video', {
      topic: 'video.events',
      events: { VideoPublished: waybill.state(videoSchema), VideoRemoved: waybill.tombstone() },
    }),
    orders: waybill.stream('order', { topic: 'order.events', events: { OrderPlaced: waybill.state(orderSchema) } }),
    invoices: waybill.stream('invoice', { topic: 'invoice.events', events: { InvoiceSent: waybill.state(orderSchema) } }),
    accounts: waybill.stream('account', {
      topic: 'account.events',
      events: { Deposited: waybill.delta(z.object({ amount: z.number() })) },
    }),
    alerts: waybill.stream('alert', {
      topic: 'alert.events',
      events: { LargeDeposit: waybill.state(z.object({ amount: z.number() })) },
    }),
    players: waybill.stream('player', { topic: 'player.events', events: { PlayerChanged: waybill.state(z.object({ item: z.string(), loot: z.string() })) } }),
    readings: waybill.stream('reading', { topic: 'reading.events', events: { ReadingTaken: waybill.state(readingSchema) } }),
  }

  declare global {
    var db: Connection
    var pool: Pool
    var outbox: Outbox
    var transport: Transport
    var relay: Relay
    var catalog: Consumer
    var billing: Consumer
    var signal: AbortSignal
    var stop: AbortController
    var app: FastifyInstance
    var added: Added
    var commands: Commands
    var useItem: Command<{ playerId: string; item: string }, { loot: string }>
    var redis: import('ioredis').Redis
    var server: Server
    var broker: MemoryTransport
    var store: Required<BlobStore>
    var signals: SignalBus
    var kit: TestKit
    var request: Request
    var owner: { fetch(id: string): Promise<{ title: string }> }
    var ownerDb: Connection
    var work: (tx: Tx) => Promise<void>
    var bill: Handler<{ total: number }>
    var mine: () => Transport
    var createTopicWithSubscriptions: (consumers: readonly string[]) => Promise<string>
    var takeBrokerDown: () => Promise<() => Promise<void>>
    var createBilling: (options: { db: Connection; transport: Transport }) => Consumer
    var placeOrder: (db: Connection, order: { id: string; total: number }) => Promise<Added>
    var directUrl: string
    var userId: string
    var requestId: string
    var input: { playerId: string; item: string }
    var reportSchema: typeof videoSchema
    var VideoSchema: DescMessage
    var firstSchema: import('avsc').Schema
    var releasedSchema: import('avsc').Schema
    var currentSchema: import('avsc').Schema
    var meters: Consumer
    var id: string
    var title: string
    var z: typeof import('zod').z
    var test: (name: string, body: () => unknown) => void
    var expect: (value: unknown) => { toEqual(other: unknown): void }
    var videos: typeof given.videos
    var orders: typeof given.orders
    var invoices: typeof given.invoices
    var accounts: typeof given.accounts
    var alerts: typeof given.alerts
    var players: typeof given.players
    var readings: typeof given.readings
  }
`

interface Manifest {
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>
}

/** Makes a folder in which `files` can be compiled and run; `waybill` and its subpaths are the sources of this repository. */
export async function snippetFolder(
  files: Readonly<Record<string, string>>,
  manifest: Readonly<Record<string, string>> = { type: 'module' },
): Promise<string> {
  // Inside the repository, so that packages the snippets import are found.
  await mkdir(join(repositoryRoot, '.cache'), { recursive: true })
  const folder = await mkdtemp(join(repositoryRoot, '.cache', 'snippets-'))
  const sources = await publicSources()
  const tsconfig = {
    extends: '../../tsconfig.json',
    compilerOptions: {
      // A user's settings: strict, without the ones that only a library needs.
      noPropertyAccessFromIndexSignature: false,
      declaration: false,
      experimentalDecorators: true,
      allowImportingTsExtensions: true,
      paths: Object.fromEntries(Object.entries(sources).map(([name, source]) => [name, [`../../${source}`]])),
    },
    include: ['**/*.ts'],
  }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(tsconfig))
  await writeFile(join(folder, 'package.json'), JSON.stringify(manifest))
  for (const [file, code] of Object.entries(files)) {
    await mkdir(join(folder, file, '..'), { recursive: true })
    await writeFile(join(folder, file), code)
  }
  return folder
}

/** The declarations that guides rely on, as a file of the folder. */
export async function givenDeclarations(): Promise<string> {
  const sources = await publicSources()
  const globals: string[] = []
  for (const [name, source] of Object.entries(sources)) {
    const exported = (await import(join(repositoryRoot, source))) as object
    for (const key of Object.keys(exported).filter((each) => each !== 'protobuf'))
      globals.push(`  var ${key}: typeof import('${name}').${key}`)
  }
  return [
    `import * as waybill from 'waybill'`,
    `import { z } from 'zod'`,
    given,
    'declare global {',
    ...new Set(globals),
    '}',
    'export {}',
  ].join('\n')
}

/** The public names of the package, and the source that each stands for. */
async function publicSources(): Promise<Record<string, string>> {
  const manifest = JSON.parse(await readFile(join(repositoryRoot, 'package.json'), 'utf8')) as Manifest
  const entries = Object.entries(manifest.exports).flatMap(([path, target]) =>
    typeof target === 'object'
      ? [[`waybill${path.slice(1)}`, target.default.replace(/^\.\/dist\//, 'src/').replace(/\.js$/, '.ts')] as const]
      : [],
  )
  return Object.fromEntries(entries)
}
