/**
 * Opens the service of the configuration, and others beside it: what a journey passes through, seen from one place.
 *
 * Consumers are made only to be asked what they read and project. They get a transport that reaches no broker.
 */
import type { Consumer } from '../../consumer/consumer.ts'
import { errorMessage, WaybillError } from '../../core/errors.ts'
import { createSignals } from '../../core/signals.ts'
import type { TracedService } from '../../ops/trace/report.ts'
import { withDatabase } from '../../ops/connect/with-database.ts'
import type { Connection } from '../../postgres/connect.ts'
import { databaseLabel } from '../../postgres/connect-failure.ts'
import { assertSchema } from '../../postgres/schema/deployment.ts'
import type { Transport } from '../../transport/port/transport.ts'
import type { CommandContext, OptionSpec } from './command.ts'
import { defaults } from '../../core/defaults.ts'
import { textOption } from './option-values.ts'
import type { Settings } from './settings.ts'

export const alsoOption: OptionSpec = {
  type: 'string',
  value: '<file,file>',
  help: "other services' configurations, or the URLs of their databases",
}

interface ServicePlace {
  readonly url: string
  readonly schema: string
  readonly settings: Settings | undefined
}

/** A service, with what its configuration says of it. */
export interface ConfiguredService extends Required<Omit<TracedService, 'name'>> {
  /** Its name, if the configuration has one. */
  readonly service: string | undefined
  readonly deploymentId: string | undefined
  readonly markerTtlMs: number | undefined
  /** Its database, without a password. */
  readonly address: string
}

/** Runs `work` with the service of the command line and those that `--also` names. */
export async function withServices<Result>(
  { values, settings, note }: Pick<CommandContext, 'values' | 'settings' | 'note'>,
  work: (services: readonly ConfiguredService[]) => Promise<Result>,
  /** Whether those beside the own one may be away, or not as they should be: whoever works with them finds out. */
  { othersMayBeAway = false }: { readonly othersMayBeAway?: boolean } = {},
): Promise<Result> {
  const own: ServicePlace = { url: settings.databaseUrl(), schema: settings.knownNames().schema, settings }
  const also = textOption(values, 'also')?.split(',') ?? []
  const others = await Promise.all(also.map((each) => placeOf(settings, each)))
  const open = async (places: readonly ServicePlace[], opened: readonly ConfiguredService[]): Promise<Result> => {
    const [next, ...rest] = places
    if (next === undefined) return await work(opened)
    const mayBeAway = othersMayBeAway && opened.length > 0
    const { service, deploymentId } = next.settings?.knownNames() ?? {}
    const go = async (db: Connection): Promise<Result> => {
      if (next.settings !== undefined && !mayBeAway) await assertSchema(db, next.settings.knownNames())
      const consumers = await consumersOf(next, db, note)
      const address = databaseLabel(next.url)
      const markerTtlMs = next.settings?.config.markerTtlMs
      return await open(rest, [...opened, { db, schema: next.schema, consumers, service, deploymentId, markerTtlMs, address }])
    }
    return await withDatabase(next.url, go, { mayBeAway })
  }
  return await open([own, ...others], [])
}

async function placeOf(settings: Settings, also: string): Promise<ServicePlace> {
  if (/^postgres(?:ql)?:/.test(also)) return { url: also, schema: defaults.schema, settings: undefined }
  const other = await settings.other(also)
  const url = other.knownDatabaseUrl()
  if (url === undefined)
    throw new WaybillError('INVALID_OPTION', `--also ${also}: set database.url there, to say which database.`)
  return { url, schema: other.knownNames().schema, settings: other }
}

async function consumersOf(
  { settings, schema }: ServicePlace,
  db: Connection,
  note: (text: string) => void,
): Promise<readonly Consumer[]> {
  const make = settings?.config.consumers
  if (settings === undefined || make === undefined) return []
  try {
    const { service } = settings.names()
    return await make({ db, schema, service, transport: noTransport, signals: createSignals() })
  } catch (error) {
    note(`The consumers of the configuration could not be made, so their projections are not shown: ${errorMessage(error)}`)
    return []
  }
}

const nowhere = (): Promise<never> =>
  Promise.reject(new WaybillError('REFUSED', 'This command only looks: it reaches no broker.'))

const noTransport: Transport = {
  name: 'none',
  maxBytes: Number.MAX_SAFE_INTEGER,
  publish: nowhere,
  receive: nowhere,
  seek: nowhere,
  close: async () => {},
}
