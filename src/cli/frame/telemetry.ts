/**
 * What commands that run services tell while they run: to people, or with `--log-json` to machines, and with `--listen` metrics and
 * health over HTTP.
 *
 * A command listens to the bus of components that were given none. So it hears of transports that a configuration makes without knowing
 * of signals, and of its own database connections, too.
 */
import { WaybillError } from '../../core/errors.ts'
import { type SignalBus, type SignalName, defaultSignals } from '../../core/signals.ts'
import type { Health } from '../../ops/status/health.ts'
import { logSignals, type LogEntry } from '../../telemetry/log-signals.ts'
import { createMetrics } from '../../telemetry/metrics.ts'
import { startTelemetryServer } from '../../telemetry/telemetry-server.ts'
import type { OptionSpec, OptionValues } from './command.ts'
import { textOption } from './option-values.ts'
import { oneLine, terminalJson } from './text-table.ts'

export const telemetryOptions: Readonly<Record<string, OptionSpec>> = {
  listen: { type: 'string', value: '<host:port>', help: 'serve /metrics, /livez and /readyz there' },
  'listen-as': { type: 'string', value: '<name,name>', help: 'answer to these names too, besides addresses and localhost' },
  'log-json': { type: 'boolean', help: 'write what happens as lines of JSON, to stderr' },
}

export interface Telemetry {
  /** Runs `work` with the server beside it, if one is asked for. */
  around<Result>(health: Health, work: () => Promise<Result>): Promise<Result>
}

/** To be made before anything is signalled. */
export function createTelemetry(values: OptionValues, signals: SignalBus, note: (text: string) => void): Telemetry {
  const address = listenAddress(values)
  const hosts = textOption(values, 'listen-as')?.split(',') ?? []
  if (values['log-json'] === true) logJson(signals, note)
  else logText(signals, note)
  const metrics = address === undefined ? undefined : createMetrics({ signals })
  return {
    around: async (health, work) => {
      if (address === undefined) return await work()
      const server = await startTelemetryServer({ ...address, hosts, metrics, health: health.handler })
      note(`metrics and health: ${server.url}`)
      try {
        return await work()
      } finally {
        await server.close()
      }
    },
  }
}

function logJson(signals: SignalBus, note: (text: string) => void): void {
  logSignals({
    signals,
    log: ({ level, signal, message, fields }) =>
      note(terminalJson({ time: new Date().toISOString(), severity: severities[level], message, signal, ...fields })),
  })
}

/** What is no trouble, but what an operator waits for: the broker is back, a pause is taken up. */
const goodToKnow: ReadonlySet<SignalName> = new Set(['relay.breaker', 'consumer.paused'])

/** Trouble as sentences, with what errors say. How a service ended is what the command itself ends by. */
function logText(signals: SignalBus, note: (text: string) => void): void {
  logSignals({
    signals,
    errors: 'text',
    log: (entry) => {
      const isTold = entry.level === 'info' ? goodToKnow.has(entry.signal) : entry.signal !== 'service.stopped'
      if (isTold) note(oneLine(entryText(entry)))
    },
  })
}

function entryText({ message, fields }: LogEntry): string {
  const { error, error_type: _type, error_code: _code, ...rest } = fields
  const facts = Object.entries(rest).map(([name, value]) => `${name}: ${value}`)
  return [message, ...(error === undefined ? [] : [error]), `(${facts.join(', ')})`].join(' ')
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

/** Runs `work`; what it subscribed to ends with it. */
export async function withSignals<Result>(work: (signals: SignalBus) => Promise<Result>): Promise<Result> {
  const ends: (() => void)[] = []
  const kept = (end: () => void): (() => void) => {
    ends.push(end)
    return end
  }
  try {
    return await work({
      emit: defaultSignals.emit,
      on: (name, listener) => kept(defaultSignals.on(name, listener)),
      onAny: (listener) => kept(defaultSignals.onAny(listener)),
    })
  } finally {
    for (const end of ends) end()
  }
}
