/**
 * `waybill.config.ts`: what the CLI has to know of a service, written once. Node runs it as it is, types and all.
 */
import { existsSync } from 'node:fs'
import { join, resolve as resolvePath } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Consumer } from '../consumer/consumer.ts'
import type { InboxRetentionOptions } from '../consumer/operate/retention.ts'
import { errorMessage, WaybillError } from '../core/errors.ts'
import { refuseUnknown } from '../core/options.ts'
import type { SignalBus } from '../core/signals.ts'
import type { AnyStream } from '../core/event/stream.ts'
import type { ProvisionOptions } from '../ops/provision/desired.ts'
import type { Backfill, BackfillOptions } from '../outbox/backfill/backfill.ts'
import type { RelayOptions } from '../outbox/relay/relay-options.ts'
import type { OutboxRetentionOptions } from '../outbox/operate/retention.ts'
import type { Database } from '../postgres/query/database.ts'
import type { PubsubAdminOptions } from '../transport/pubsub/admin/admin.ts'
import type { Transport } from '../transport/port/transport.ts'

export interface WaybillConfig {
  /** The service whose schema this is. */
  readonly service: string
  /** @default { url: process.env.DATABASE_URL } */
  readonly database?: { readonly url?: string | undefined }
  /** @default 'waybill' */
  readonly schema?: string
  /** Pins the deployment, so that a process started with this configuration refuses every other database. */
  readonly deploymentId?: string | undefined
  /** What kind of place this is. `waybill dev` refuses `production` where a database is named; so do drills, unless told otherwise. */
  readonly environment?: string | undefined
  /** Opens the broker, when a command needs it; the command closes it. */
  readonly transport?: (context: TransportContext) => Transport | Promise<Transport>
  /** The service's streams: the relay keeps to their ordering and size limits. */
  readonly streams?: readonly AnyStream[]
  /** How `waybill relay` works. */
  readonly relay?: RelayConfig
  /** What `waybill relay` removes, and when; `false` if somebody else does. */
  readonly retention?: false | RetentionConfig
  /** Makes the consumers that `waybill consume` runs. */
  readonly consumers?: (context: ConsumersContext) => readonly Consumer[] | Promise<readonly Consumer[]>
  /** What `waybill consume` removes, and when; `false` if somebody else does. */
  readonly inboxRetention?: false | InboxRetentionConfig
  /** `ttlMs` of `createMarkerCleanup`, by which `waybill status` and `waybill dashboard` tell whether it keeps up. @default 3_600_000 */
  readonly markerTtlMs?: number | undefined
  /** What `waybill backfill <name>` can run. */
  readonly backfills?: Readonly<Record<string, (context: BackfillContext) => Backfill>>
  /** Google Pub/Sub, for `provision` and `doctor pubsub`. */
  readonly pubsub?: Partial<PubsubConfig>
  /** Makes the tables of the service's own, for `waybill dev`; called at each start, so it must not mind those that are there. */
  readonly prepare?: (context: TransportContext) => Promise<unknown>
}

/** What a transport can be made from. */
export interface TransportContext {
  readonly db: Database
  readonly schema: string
}

/** What consumers are made from: pass it on to `createConsumer`. */
export interface ConsumersContext extends TransportContext {
  readonly service: string
  readonly transport: Transport
  readonly signals: SignalBus
}

/** What a backfill is made from: pass it on to `createBackfill`. */
export type BackfillContext = Required<Pick<BackfillOptions<unknown>, 'db' | 'outbox' | 'name' | 'service' | 'actor' | 'signals'>>

export type RelayConfig = Omit<
  RelayOptions,
  'db' | 'outbox' | 'transport' | 'streams' | 'service' | 'signals' | 'clock' | 'random'
>
export type RetentionConfig = Omit<OutboxRetentionOptions, 'db' | 'outbox' | 'signals' | 'clock'>
export type InboxRetentionConfig = Omit<InboxRetentionOptions, 'db' | 'schema' | 'signals' | 'clock'>

export interface PubsubConfig extends PubsubAdminOptions {
  /** The streams and consumers whose topics and subscriptions are provisioned. */
  readonly provision?: ProvisionOptions
}

/** Gives the configuration its type. */
export function defineConfig(config: WaybillConfig): WaybillConfig {
  return config
}

const configNames = [
  'service',
  'database',
  'schema',
  'deploymentId',
  'environment',
  'transport',
  'streams',
  'relay',
  'retention',
  'backfills',
  'consumers',
  'inboxRetention',
  'markerTtlMs',
  'pubsub',
  'prepare',
]
const fileNames = ['waybill.config.ts', 'waybill.config.mts', 'waybill.config.js', 'waybill.config.mjs']

/** Loads the configuration at `path`, or the one in the folder if there is one. */
export async function loadConfig(folder: string, path: string | undefined): Promise<Partial<WaybillConfig>> {
  const file = configFile(folder, path)
  if (file === undefined) return {}
  const config = await importDefault(file)
  refuseUnknown('waybill.config', config, configNames)
  if (config.database !== undefined) refuseUnknown('waybill.config.database', config.database, ['url'])
  return config
}

/** Where the configuration is: the file at `path`, or the one in the folder if there is one. */
export function configFile(folder: string, path: string | undefined): string | undefined {
  if (path !== undefined) return resolvePath(folder, path)
  return fileNames.map((name) => join(folder, name)).find((each) => existsSync(each))
}

async function importDefault(file: string): Promise<Partial<WaybillConfig>> {
  if (!existsSync(file)) throw new WaybillError('INVALID_OPTION', `There is no configuration file ${file}.`)
  let found: { readonly default?: unknown }
  try {
    found = (await import(pathToFileURL(file).href)) as { readonly default?: unknown }
  } catch (cause) {
    const advice = isTakenForCommonJs(cause) ? `. ${asModule}` : ''
    throw new WaybillError('INVALID_OPTION', `${file} could not be loaded: ${errorMessage(cause)}${advice}`, { cause })
  }
  if (typeof found.default !== 'object' || found.default === null) {
    throw new WaybillError(
      'INVALID_OPTION',
      `${file} has no default export. Write: export default defineConfig({ service: 'orders' })`,
    )
  }
  return found.default
}

const asModule =
  'Node takes it for CommonJS: add "type": "module" to package.json (npm pkg set type=module), or name it waybill.config.mts.'

/** What Node says of an ES module in a package that is CommonJS, which it is if `npm init` made it. */
function isTakenForCommonJs(error: unknown): boolean {
  return (
    error instanceof SyntaxError &&
    /^Cannot use (?:import statement|'import\.meta')|^Unexpected token 'export'/.test(error.message)
  )
}
