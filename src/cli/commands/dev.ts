/**
 * `waybill dev`: a service's whole surroundings by one command. A Postgres and a Pub/Sub server of their own where none are
 * given, the schema migrated, topics and subscriptions made, relay and consumers running; what it started is gone with Ctrl-C.
 *
 * Relay and consumers are processes that load the configuration with the addresses in their environment, and are started
 * again when it, or a file that it imports, changes.
 *
 * What its relay publishes goes to a broker for development, and is gone from the outbox. So a database that calls itself
 * production is refused. One of another machine, or whose schema is no deployment for development, needs a yes; a schema that
 * dev itself makes is stamped as one.
 */
import { WaybillError } from '../../core/errors.ts'
import { untilAborted } from '../../core/service/abort.ts'
import { isDevelopment } from '../../drill/target/production-sign.ts'
import { desiredResources } from '../../ops/provision/desired.ts'
import { applyProvision, planProvision } from '../../ops/provision/provision.ts'
import { withDatabase } from '../../ops/connect/with-database.ts'
import { redactSecrets } from '../../core/redact.ts'
import { parseDatabaseUrl } from '../../postgres/connect-failure.ts'
import { migrationStatus } from '../../postgres/schema/status.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { createPubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import type { Command, CommandContext, OptionValues } from '../frame/command.ts'
import { portOption } from '../frame/option-values.ts'
import { refuseProduction } from '../frame/refuse-production.ts'
import { databaseOptions } from '../frame/settings.ts'
import { startProgram, type RunningProgram } from '../frame/start-program.ts'
import { whoMayMigrate } from '../../ops/connect/role-hints.ts'

export const devCommand: Command = {
  summary: 'Run a service for development: databases, broker, relay and consumers, by one command',
  details: [
    'Starts a Postgres of its own unless a database is named, and a Pub/Sub server of its own if the configuration has a',
    'pubsub section and no emulator is named. Migrates, calls prepare of the configuration for the tables of your own,',
    'provisions, and runs relay and consumers; both start again when the configuration or what it imports changes. They find',
    'DATABASE_URL, PUBSUB_EMULATOR_HOST and PUBSUB_PROJECT_ID in their environment. Ctrl-C ends all; the data of a Postgres',
    'that it started is gone, a named database keeps its own. One that calls itself production is refused. A schema that dev',
    'makes is stamped as the deployment "dev"; one that is there and whose deployment is not named so (dev, development or',
    'local as a word) needs --yes.',
  ],
  options: {
    ...databaseOptions,
    pubsub: { type: 'boolean', help: 'a Pub/Sub server even if the configuration has no pubsub section' },
    port: { type: 'string', value: '<port>', help: 'the port of Postgres [a free one]' },
    yes: { type: 'boolean', help: 'also on a database of another machine, or a schema that is not for development' },
  },
  whoMay: whoMayMigrate,
  async run(context) {
    const { settings, stopSignal } = context
    const names = settings.names()
    const signal = stopSignal()
    const closers: (() => Promise<void>)[] = []
    try {
      const databaseUrl = await databaseOf(context, closers)
      const broker = await brokerOf(context, closers)
      await prepare(context, { databaseUrl, broker })
      const running = runProcesses(context, { databaseUrl, broker, closers })
      if (running.length === 0)
        context.note('The configuration has no transport, so neither relay nor consumers run; the rest does.')
      context.note(`${names.service} runs. Ctrl-C ends all of it.`)
      await untilAborted(signal)
      return { text: 'Ended.', data: { databaseUrl: redactSecrets(databaseUrl), emulatorHost: broker?.emulatorHost } }
    } finally {
      for (const close of closers.toReversed()) await close()
    }
  },
}

interface DevBroker {
  readonly emulatorHost: string
  readonly projectId: string
}

interface Surroundings {
  readonly databaseUrl: string
  readonly broker: DevBroker | undefined
}

/** The deployment of a schema that dev makes, unless the configuration names another. */
const devDeployment = 'dev'

async function databaseOf(context: CommandContext, closers: (() => Promise<void>)[]): Promise<string> {
  const { settings, values, note } = context
  const given = settings.knownDatabaseUrl()
  if (given !== undefined) {
    await refuseGiven(context, given)
    return given
  }
  const { startPostgres } = await import('../../testing/servers/postgres.ts')
  const port = portOption(values, 'port', { from: 1 })
  const postgres = await startPostgres(port === undefined ? {} : { port })
  closers.push(() => postgres.stop())
  note(`Postgres   DATABASE_URL=${postgres.url}`)
  return postgres.url
}

async function refuseGiven({ settings, values }: CommandContext, url: string): Promise<void> {
  const isMeant = values['yes'] === true
  const host = hostOf(url)
  if (!isMeant && !isThisMachine(host)) {
    throw new WaybillError(
      'REFUSED',
      `The database is on ${host}: dev would migrate it and publish its events to a local broker. If that is what you want, add --yes.`,
    )
  }
  const stamped = await refuseProduction(
    settings,
    'dev would migrate it and publish its events to a broker for development, and production would never see them. Name another database, or none: then dev starts one.',
  )
  if (isMeant || stamped === undefined || isDevelopment(stamped.deploymentId)) return
  const { schema } = settings.knownNames()
  const { service, deploymentId } = stamped
  throw new WaybillError(
    'REFUSED',
    `The schema "${schema}" of the service "${service}" in this database is the deployment "${deploymentId}", which dev did not make: ` +
      'dev would migrate it and publish its events to a broker for development, and nobody else would see them. If it is for development, add --yes; ' +
      `or say so once: waybill migrate adopt --schema ${schema} --service ${service} --deployment-id ${devDeployment} --yes`,
  )
}

/** Where the driver connects to: a host among the parameters wins. */
function hostOf(url: string): string {
  const { hostname, searchParams } = parseDatabaseUrl(url)
  return searchParams.get('host') ?? hostname
}

function isThisMachine(host: string): boolean {
  return host.startsWith('/') || ['', 'localhost', '127.0.0.1', '[::1]', '::1'].includes(host)
}

async function brokerOf(
  { settings, values, note }: CommandContext,
  closers: (() => Promise<void>)[],
): Promise<DevBroker | undefined> {
  const { emulatorHost, projectId = 'dev' } = settings.knownPubsub()
  if (emulatorHost !== undefined) return { emulatorHost, projectId }
  if (settings.config.pubsub === undefined && values['pubsub'] !== true) return undefined
  const { startPubsubServer } = await import('../../testing/servers/pubsub-server.ts')
  const server = await startPubsubServer()
  closers.push(() => server.stop())
  note(`Pub/Sub    PUBSUB_EMULATOR_HOST=${server.emulatorHost}`)
  note(`Faults     ${server.adminUrl}`)
  return { emulatorHost: server.emulatorHost, projectId }
}

async function prepare({ settings, note }: CommandContext, { databaseUrl, broker }: Surroundings): Promise<void> {
  const names = settings.names()
  await withDatabase(databaseUrl, async (db) => {
    const isNew = (await migrationStatus(db, { schema: names.schema })).deployment === undefined
    const { applied } = await migrate(db, isNew ? { ...names, deploymentId: names.deploymentId ?? devDeployment } : names)
    note(`Schema     ${names.schema}: ${applied.length === 0 ? 'up to date' : `${applied.length} migrations applied`}`)
    await settings.config.prepare?.({ db, schema: names.schema })
  })
  const wanted = settings.config.pubsub?.provision
  if (broker === undefined || wanted === undefined) return
  const admin = createPubsubAdmin(broker)
  try {
    const plan = await planProvision(admin, desiredResources(wanted))
    await applyProvision(admin, plan)
    note(`Broker     ${plan.changes.length} changes to topics, subscriptions and grants`)
  } finally {
    await admin.close()
  }
}

function runProcesses(
  { settings, values, program, note }: CommandContext,
  { databaseUrl, broker, closers }: Surroundings & { readonly closers: (() => Promise<void>)[] },
): readonly RunningProgram[] {
  const { transport, consumers } = settings.config
  const env = {
    DATABASE_URL: databaseUrl,
    ...(broker === undefined ? {} : { PUBSUB_EMULATOR_HOST: broker.emulatorHost, PUBSUB_PROJECT_ID: broker.projectId }),
  }
  const commands = [
    ...(transport === undefined ? [] : ['relay']),
    ...(transport === undefined || consumers === undefined ? [] : ['consume']),
  ]
  return commands.map((command) => {
    const words = [command, ...sameOptions(values)]
    const running = startProgram({ program, words, env, onLine: (line) => note(`${command.padEnd(9)}  ${line}`) })
    closers.push(() => running.stop())
    return running
  })
}

/** The options that say which service it is. */
function sameOptions(values: OptionValues): string[] {
  return ['config', 'schema', 'service', 'deployment-id'].flatMap((option) => {
    const value = values[option]
    return typeof value === 'string' ? [`--${option}`, value] : []
  })
}
