/**
 * Whether a shipped alert fires on the metrics of a process: decided by Prometheus itself with the shipped rules, where the
 * machine has it; else by the condition of that rule on the metrics' text.
 */
import { existsSync, readFileSync } from 'node:fs'
import { findProgram } from '../../testing/process/find-program.ts'
import { startPrometheus } from '../../testing/servers/prometheus.ts'

export interface AlertWatch {
  /** How it is decided, for the report. */
  readonly how: string
  isFiring(): Promise<boolean>
  stop(): Promise<void>
}

export interface WatchedAlert {
  readonly name: 'WaybillDeadLetters'
  readonly metricsUrl: string
}

const rulesFile = new URL('../../../deploy/prometheus/waybill.rules.yml', import.meta.url)

export async function watchAlert(alert: WatchedAlert): Promise<AlertWatch> {
  if (findProgram('prometheus') === undefined || !existsSync(rulesFile)) return watchText(alert)
  return await watchByPrometheus(alert)
}

async function watchByPrometheus({ name, metricsUrl }: WatchedAlert): Promise<AlertWatch> {
  const prometheus = await startPrometheus({ rules: readFileSync(rulesFile, 'utf8'), targets: [metricsUrl] })
  return {
    how: `Prometheus, with the shipped rules, saw the alert ${name} fire`,
    isFiring: async () => (await prometheus.firing()).some((labels) => labels['alertname'] === name),
    stop: () => prometheus.stop(),
  }
}

/** The rule fires for a count that was not there before; a process that was just started had none. */
function watchText({ name, metricsUrl }: WatchedAlert): AlertWatch {
  return {
    how: `the condition of the alert ${name} holds on the metrics (there is no Prometheus on this machine to ask: apt-get install prometheus)`,
    isFiring: async () => deadLettersIn(await (await fetch(`${metricsUrl}/metrics`)).text()) > 0,
    stop: async () => {},
  }
}

/** Dead letters but for those that a handler wanted. */
export function deadLettersIn(text: string): number {
  return text
    .split('\n')
    .filter((line) => line.startsWith('waybill_consumer_dead_letters_total{') && !line.includes('reason="discarded"'))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
}
