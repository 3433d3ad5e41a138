/**
 * What a command works with: options on the command line win over the environment, that over `waybill.config.ts`.
 *
 * Values are asked for when they are needed, so that a command that needs no database does not ask for one.
 */
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import type { DeploymentNames } from '../../postgres/schema/deployment-names.ts'
import type { OptionSpec, OptionValues } from './command.ts'
import { configFile, loadConfig, type InboxRetentionConfig, type PubsubConfig, type WaybillConfig } from '../../config/config.ts'

export interface Settings {
  /** INVALID_OPTION if nobody said which. */
  databaseUrl(): string
  knownDatabaseUrl(): string | undefined
  names(): DeploymentNames
  /** The names as far as they are known: enough to look at a schema. */
  knownNames(): Omit<DeploymentNames, 'service'> & { readonly service: string | undefined }
  /** What `waybill relay` is made from; INVALID_OPTION if no transport is configured. */
  relay(): ConfiguredRelay
  /** What `waybill consume` is made from; INVALID_OPTION if no transport or no consumers are configured. */
  consume(): ConfiguredConsumers
  /** The backfill of this name; INVALID_OPTION, with the names there are, if there is none. */
  backfill(name: string | boolean | undefined): ConfiguredBackfill
  /** INVALID_OPTION if nobody said which project. */
  pubsub(): PubsubConfig
  knownPubsub(): { readonly projectId: string | undefined; readonly emulatorHost: string | undefined }
  /** The parts of the configuration that are there, as they are. */
  readonly config: Partial<WaybillConfig>
  /** The file it was read from. */
  readonly configFile: string | undefined
  /** What the configuration and NODE_ENV call this place, as far as they say. */
  readonly environments: readonly string[]
  /** The settings of another service: its own configuration alone, not this command line or environment. */
  other(file: string): Promise<Settings>
}

export interface ConfiguredBackfill {
  readonly name: string
  readonly create: NonNullable<WaybillConfig['backfills']>[string]
}

export interface ConfiguredRelay extends Required<Pick<WaybillConfig, 'transport' | 'streams' | 'relay' | 'retention'>> {}

export interface ConfiguredConsumers extends Required<Pick<WaybillConfig, 'transport' | 'consumers'>> {
  readonly retention: false | InboxRetentionConfig
}

/** Options of every command that works on a database. */
export const databaseOptions: Readonly<Record<string, OptionSpec>> = {
  'database-url': { type: 'string', value: '<url>', help: 'the database (or DATABASE_URL, or database.url of the config)' },
  ...namesOptions(),
}

/** Options of commands that only need to know whose schema it is. */
export function namesOptions(): Readonly<Record<string, OptionSpec>> {
  return {
    schema: { type: 'string', value: '<name>', help: `the schema (or WAYBILL_SCHEMA) [${defaults.schema}]` },
    service: { type: 'string', value: '<name>', help: 'the service that owns the schema (or WAYBILL_SERVICE)' },
    'deployment-id': { type: 'string', value: '<id>', help: 'the deployment it has to be (or WAYBILL_DEPLOYMENT_ID)' },
    config: { type: 'string', value: '<file>', help: 'the configuration [waybill.config.ts]' },
  }
}

export async function readSettings({
  values,
  env,
  folder,
}: {
  readonly values: OptionValues
  readonly env: Readonly<Record<string, string | undefined>>
  readonly folder: string
}): Promise<Settings> {
  const config = await loadConfig(folder, textOf(values['config']))
  const pick = (option: string, variable: string, configured: string | undefined): string | undefined =>
    textOf(values[option]) ?? textOf(env[variable]) ?? configured
  const knownNames: Settings['knownNames'] = () => ({
    schema: pick('schema', 'WAYBILL_SCHEMA', config.schema) ?? defaults.schema,
    service: pick('service', 'WAYBILL_SERVICE', config.service),
    deploymentId: pick('deployment-id', 'WAYBILL_DEPLOYMENT_ID', config.deploymentId),
  })
  const knownDatabaseUrl = (): string | undefined => pick('database-url', 'DATABASE_URL', config.database?.url)
  const knownPubsub: Settings['knownPubsub'] = () => ({
    projectId: pick('project', 'PUBSUB_PROJECT_ID', config.pubsub?.projectId),
    emulatorHost: pick('emulator-host', 'PUBSUB_EMULATOR_HOST', config.pubsub?.emulatorHost),
  })
  const environments = [config.environment, textOf(env['NODE_ENV'])].filter((each) => each !== undefined)
  return {
    config,
    configFile: configFile(folder, textOf(values['config'])),
    environments,
    other: (file) => readSettings({ values: { config: file }, env: {}, folder }),
    knownNames,
    knownDatabaseUrl,
    databaseUrl: () =>
      knownDatabaseUrl() ??
      missing('Which database? Pass --database-url, set DATABASE_URL, or set database.url in waybill.config.ts.'),
    names: () => {
      const { service, ...rest } = knownNames()
      const named =
        service ??
        missing('Which service owns the schema? Pass --service, set WAYBILL_SERVICE, or set service in waybill.config.ts.')
      return { ...rest, service: named }
    },
    ...configuredWork(config),
    knownPubsub,
    pubsub: () => {
      const { emulatorHost, projectId } = knownPubsub()
      const named =
        projectId ??
        missing('Which project? Pass --project, set PUBSUB_PROJECT_ID, or set pubsub.projectId in waybill.config.ts.')
      return { ...config.pubsub, projectId: named, ...(emulatorHost === undefined ? {} : { emulatorHost }) }
    },
  }
}

/** What is made from the configuration alone. */
function configuredWork(config: Partial<WaybillConfig>): Pick<Settings, 'consume' | 'relay' | 'backfill'> {
  return {
    consume: () => ({
      transport: transportOf(config),
      consumers:
        config.consumers ??
        missing(
          'Which consumers? Set consumers in waybill.config.ts, such as consumers: (context) => [createConsumer({ ...context, … })].',
        ),
      retention: config.inboxRetention ?? {},
    }),
    relay: () => ({
      transport: transportOf(config),
      streams: config.streams ?? [],
      relay: config.relay ?? {},
      retention: config.retention ?? {},
    }),
    backfill: (given) => backfillOf(config, given),
  }
}

function transportOf({ transport }: Partial<WaybillConfig>): NonNullable<WaybillConfig['transport']> {
  return transport ?? missing('Which broker? Set transport in waybill.config.ts, such as transport: () => pubsub({ projectId }).')
}

/** Empty is as good as not given: that is how environments unset a variable. */
function textOf(value: string | boolean | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

function backfillOf({ backfills = {} }: Partial<WaybillConfig>, given: string | boolean | undefined): ConfiguredBackfill {
  const name = textOf(given)
  const create = name !== undefined && Object.hasOwn(backfills, name) ? backfills[name] : undefined
  if (name !== undefined && create !== undefined) return { name, create }
  const names = Object.keys(backfills).join(', ')
  return missing(
    names === ''
      ? 'Which backfill? Name it in backfills of waybill.config.ts, such as backfills: { videos: (context) => createBackfill({ ...context, … }) }.'
      : `Which backfill? Configured: ${names}.`,
  )
}

function missing(question: string): never {
  throw new WaybillError('INVALID_OPTION', question)
}
