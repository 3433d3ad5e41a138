/**
 * The values of options on the command line: texts, whole numbers, durations (`500ms`, `30s`, `5m`, `2h`, `1d`), ports, and filters.
 */
import { WaybillError } from '../../core/errors.ts'
import type { OptionValues } from './command.ts'
import type { Chosen } from '../../core/options.ts'

/** The text of an option; empty is a mistake, not "all". */
export function textOption(values: OptionValues, option: string): string | undefined {
  const value = values[option]
  if (value === undefined) return undefined
  if (typeof value === 'string' && value !== '') return value
  throw new WaybillError('INVALID_OPTION', `--${option} needs a value.`)
}

/** What an action is for. Everything must be asked for: a forgotten option must not mean all. */
export function chosenBy<Filter extends object>(values: OptionValues, filter: Filter, question: string): Chosen<Filter> {
  const named = Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined))
  const isRestricted = Object.keys(named).length > 0
  if (isRestricted === (values['all'] === true)) throw new WaybillError('INVALID_OPTION', question)
  return (isRestricted ? named : { all: true }) as Chosen<Filter>
}

/** The whole number of an option. */
export function wholeOption(values: OptionValues, option: string): number | undefined {
  const given = textOption(values, option)
  if (given === undefined) return undefined
  const number = Number(given)
  if (Number.isSafeInteger(number) && number > 0 && number <= 1_000_000) return number
  throw new WaybillError('INVALID_OPTION', `--${option} needs a whole number from 1 to 1000000, not "${given}".`)
}

const unitsMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** The whole milliseconds of an option. */
export function durationOption(values: OptionValues, option: string): number | undefined {
  const given = textOption(values, option)
  if (given === undefined) return undefined
  const [, number, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(given) ?? []
  if (number !== undefined && unit !== undefined) return Math.round(Number(number) * (unitsMs[unit] ?? 1))
  throw new WaybillError('INVALID_OPTION', `--${option} needs a duration such as 500ms, 30s, 5m, 2h or 1d, not "${given}".`)
}

/** The port; 0 stands for any free one, where it may. INVALID_OPTION for what is none. */
export function portOption(
  values: OptionValues,
  option: string,
  { from = 0 }: { readonly from?: 0 | 1 } = {},
): number | undefined {
  const given = values[option]
  if (given === undefined) return undefined
  if (typeof given === 'string' && /^[0-9]{1,5}$/.test(given) && Number(given) >= from && Number(given) <= 65_535)
    return Number(given)
  throw new WaybillError(
    'INVALID_OPTION',
    `--${option}: expected a port from ${from === 0 ? '0 (any free one)' : '1'} to 65535, got ${JSON.stringify(given)}.`,
  )
}
