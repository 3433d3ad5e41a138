/**
 * Whether a shipped alert fires on the metrics of a process: decided by Prometheus itself with the shipped rules, where the
 * machine has it; else by the condition of that rule on the metrics' text.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../testing/find-program.ts'
import { freePort } from '../testing/free-port.ts'
import { startService } from '../testing/service-process.ts'

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

const rulesFile = new URL('../../deploy/prometheus/waybill.rules.yml', import.meta.url)

export async function watchAlert(alert: WatchedAlert): Promise<AlertWatch> {
  const program = findProgram('prometheus')
  if (program === undefined || !existsSync(rulesFile)) return watchText(alert)
  return await watchByPrometheus(alert, program)
}

async function watchByPrometheus({ name, metricsUrl }: WatchedAlert, program: string): Promise<AlertWatch> {
  const port = await freePort()
  const service = await startService({
    name: 'prometheus',
    program,
    prepare: (folder) => {
      writeFileSync(join(folder, 'waybill.rules.yml'), readFileSync(rulesFile))
      writeFileSync(join(folder, 'prometheus.yml'), JSON.stringify(settings(new URL(metricsUrl).host)))
      return [
        `--config.file=${join(folder, 'prometheus.yml')}`,
        `--storage.tsdb.path=${join(folder, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ]
    },
    readyText: 'Server is ready to receive web requests.',
  })
  return {
    how: `Prometheus, with the shipped rules, saw the alert ${name} fire`,
    isFiring: async () => {
      const response = await fetch(`http://127.0.0.1:${port}/api/v1/alerts`)
      const { data } = (await response.json()) as {
        readonly data: { readonly alerts: readonly { state: string; labels: Record<string, string> }[] }
      }
      return data.alerts.some(({ state, labels }) => state === 'firing' && labels['alertname'] === name)
    },
    stop: () => service.stop(),
  }
}

function settings(target: string): unknown {
  return {
    global: { scrape_interval: '500ms', evaluation_interval: '500ms' },
    rule_files: ['waybill.rules.yml'],
    scrape_configs: [{ job_name: 'drill', static_configs: [{ targets: [target] }] }],
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
