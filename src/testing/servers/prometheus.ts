/**
 * Prometheus itself, on a free port of the loopback interface, with the given rules and targets: whether an alert fires is
 * decided by what operators run, not by a reading of its condition.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findProgram } from '../process/find-program.ts'
import { onFreePort } from '../process/free-port.ts'
import { startService } from '../process/service-process.ts'

export interface PrometheusProcess {
  /** The names of the alerts that fire now, with their labels. */
  firing(): Promise<readonly Readonly<Record<string, string>>[]>
  /** The values that an expression has now. */
  query(expr: string): Promise<readonly number[]>
  stop(): Promise<void>
}

export interface PrometheusOptions {
  readonly rules: string
  readonly targets: readonly string[]
}

export async function startPrometheus(options: PrometheusOptions): Promise<PrometheusProcess> {
  return await onFreePort((port) => startOn(port, options))
}

async function startOn(port: number, { rules, targets }: PrometheusOptions): Promise<PrometheusProcess> {
  const config = {
    global: { scrape_interval: '500ms', evaluation_interval: '500ms' },
    rule_files: ['waybill.rules.yml'],
    scrape_configs: [{ job_name: 'waybill', static_configs: [{ targets: targets.map((target) => new URL(target).host) }] }],
  }
  const service = await startService({
    name: 'prometheus',
    program: findProgram('prometheus') ?? 'prometheus',
    prepare: (folder) => {
      writeFileSync(join(folder, 'prometheus.yml'), JSON.stringify(config))
      writeFileSync(join(folder, 'waybill.rules.yml'), rules)
      return [
        `--config.file=${join(folder, 'prometheus.yml')}`,
        `--storage.tsdb.path=${join(folder, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ]
    },
    readyText: 'Server is ready to receive web requests.',
  })
  const ask = async <Data>(path: string): Promise<Data> => {
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/${path}`)
    return ((await response.json()) as { readonly data: Data }).data
  }
  return {
    firing: async () => {
      const { alerts } = await ask<{ alerts: { state: string; labels: Record<string, string> }[] }>('alerts')
      return alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels)
    },
    query: async (expr) => {
      const { result } = await ask<{ result: { value: [number, string] }[] }>(`query?query=${encodeURIComponent(expr)}`)
      return result.map(({ value }) => Number(value[1]))
    },
    stop: () => service.stop(),
  }
}
