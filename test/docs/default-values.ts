/**
 * Defaults as pages state them, held to those of the reference: "`leaseMs` (5 s)", "`maxAttempts` (20 by default)", and the column
 * "default" of tables of options. The reference is made from the sources, so a default that changes makes its guides fail.
 */
import { inlineCode, tableRows } from './pages.ts'

export interface Stated {
  readonly option: string
  readonly value: string
}

const units: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  min: 60_000,
  minute: 60_000,
  h: 3_600_000,
  hour: 3_600_000,
  days: 86_400_000,
  KiB: 1_024,
  MiB: 1_048_576,
}

/** Every default that a page states. */
export function statedDefaults(prose: string): Stated[] {
  const inSentences = [...prose.matchAll(/`(\w+)` \(([\d,.]+ ?[A-Za-z]*)(?: by default)?[);,]/g)].map(
    ([, option = '', value = '']) => ({
      option,
      value,
    }),
  )
  return [...inSentences, ...tableRows(prose).flatMap(inTable)]
}

/** The defaults of every option, as numbers: options of several functions share a name. */
export function knownDefaults(reference: string): ReadonlyMap<string, ReadonlySet<number>> {
  const known = new Map<string, Set<number>>()
  for (const { option, value } of tableRows(reference).flatMap(inTable)) {
    const amount = amountOf(value)
    if (amount !== undefined) known.set(option, (known.get(option) ?? new Set()).add(amount))
  }
  return known
}

/** What a page states and no option of that name has. */
export function wrongDefaults(stated: readonly Stated[], known: ReadonlyMap<string, ReadonlySet<number>>): string[] {
  return stated
    .filter(({ option, value }) => {
      const [amount, values] = [amountOf(value), known.get(option)]
      return amount !== undefined && values !== undefined && !values.has(amount)
    })
    .map(({ option, value }) => `${option} is not ${value} by default`)
}

/** A number with its unit; undefined for what is no plain amount. */
function amountOf(text: string): number | undefined {
  const [, digits, unit = ''] = /^`?([\d,.]+)`? ?([A-Za-z]*)$/.exec(text.trim()) ?? []
  const factor = unit === '' ? 1 : units[unit]
  return digits === undefined || factor === undefined ? undefined : Number(digits.replaceAll(',', '')) * factor
}

function inTable({ head, cells }: { readonly head: readonly string[]; readonly cells: readonly string[] }): Stated[] {
  if (head[0] !== 'option' || head[1] !== 'default') return []
  const names = inlineCode(cells[0] ?? '').map((name) => name.split('.').at(-1) ?? name)
  const values = (cells[1] ?? '').split(/, (?=\d)/)
  return names.map((option, place) => ({ option, value: (names.length === values.length ? values[place] : cells[1]) ?? '' }))
}
