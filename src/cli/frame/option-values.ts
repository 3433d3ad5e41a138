/** Durations on the command line: `500ms`, `30s`, `5m`, `2h`, `1d`. */
import { WaybillError } from '../../core/errors.ts'
import type { OptionValues } from './command.ts'
import { textOption } from '../commands/outbox.ts'

const unitsMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** The whole milliseconds of an option. */
export function durationOption(values: OptionValues, option: string): number | undefined {
  const given = textOption(values, option)
  if (given === undefined) return undefined
  const [, number, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(given) ?? []
  if (number !== undefined && unit !== undefined) return Math.round(Number(number) * (unitsMs[unit] ?? 1))
  throw new WaybillError('INVALID_OPTION', `--${option} needs a duration such as 500ms, 30s, 5m, 2h or 1d, not "${given}".`)
}
