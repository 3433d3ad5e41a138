/**
 * `--listen` and `--log-json` of commands that run services: metrics and health over HTTP, and logs for machines.
 */
import { WaybillError } from '../core/errors.ts'
import type { SignalBus } from '../core/signals.ts'
import type { Health } from '../ops/health.ts'
import { logSignals } from '../telemetry/log-signals.ts'
import { createMetrics } from '../telemetry/metrics.ts'
import { startTelemetryServer } from '../telemetry/telemetry-server.ts'
import type { OptionSpec, OptionValues } from './command.ts'
import { textOption } from './outbox-commands.ts'

export const telemetryOptions: Readonly<Record<string, OptionSpec>> = {
  listen: { type: 'string', value: '<host:port>', help: 'serve /metrics, /livez and /readyz there' },
  'log-json': { type: 'boolean', help: 'write what happens as lines of JSON, to stderr' },
}

export interface Telemetry {
  /** Whether somebody else writes what happens, so that the command need not. */
  readonly isLogging: boolean
  /** Runs `work` with the server beside it, if one is asked for. */
  around<Result>(health: Health, work: () => Promise<Result>): Promise<Result>
}

/** To be made before anything is signalled. */
export function createTelemetry(values: OptionValues, signals: SignalBus, note: (text: string) => void): Telemetry {
  const address = listenAddress(values)
  const isLogging = values['log-json'] === true
  if (isLogging) {
    logSignals({
      signals,
      log: ({ level, signal, message, fields }) =>
        note(JSON.stringify({ time: new Date().toISOString(), severity: severities[level], message, signal, ...fields })),
    })
  }
  const metrics = address === undefined ? undefined : createMetrics({ signals })
  return {
    isLogging,
    around: async (health, work) => {
      if (address === undefined) return await work()
      const server = await startTelemetryServer({ ...address, metrics, health: health.handler })
      note(`metrics and health: ${server.url}`)
      try {
        return await work()
      } finally {
        await server.close()
      }
    },
  }
}

/** As Google Cloud names them. */
const severities = { debug: 'DEBUG', info: 'INFO', warn: 'WARNING', error: 'ERROR' } as const

function listenAddress(values: OptionValues): { readonly host: string; readonly port: number } | undefined {
  const given = textOption(values, 'listen')
  if (given === undefined) return undefined
  const [, host = '127.0.0.1', port = ''] = /^(?:(.+):)?(\d+)$/.exec(given) ?? []
  if (port !== '' && Number(port) <= 65_535) return { host: host.replace(/^\[(.*)\]$/, '$1'), port: Number(port) }
  throw new WaybillError(
    'INVALID_OPTION',
    `--listen needs a port, or an address and a port such as 0.0.0.0:8080, not "${given}".`,
  )
}
