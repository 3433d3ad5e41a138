/**
 * Options that name a port.
 */
import { WaybillError } from '../../core/errors.ts'
import type { OptionValues } from './command.ts'

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
