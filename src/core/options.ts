/**
 * One way to read options: unknown keys are refused with the nearest known name, defaults fill, ranges are checked.
 *
 * A misspelt option that is silently ignored is a setting that its owner believes in. So it is an error, at start.
 *
 * A filter says which of many an action is for outright: a field that is left out, or misspelt, never means all of them.
 *
 * What a component derives from its settings is made once, never with each call.
 */
import { WaybillError } from './errors.ts'

/** Says what is wrong with a value ("must be at least 1"), or `true` if nothing is. */
export type Check<Value> = (value: Value) => true | string

export type Checks<Options> = { readonly [Key in keyof Options]?: Check<Exclude<Options[Key], undefined>> }

/** Fills `given` from `defaults`; throws INVALID_OPTION for an unknown key or a value that its check refuses. */
export function resolve<Options extends object>(
  component: string,
  defaults: Options,
  given: { readonly [Key in keyof Options]?: Options[Key] | undefined },
  checks: Checks<Options> = {},
): Options {
  refuseUnknown(component, given, Object.keys(defaults))
  const options = { ...defaults }
  for (const key of Object.keys(given) as (keyof Options & string)[]) {
    const value = given[key]
    if (value === undefined) continue
    const check = checks[key] as Check<unknown> | undefined
    const verdict = check?.(value) ?? true
    if (verdict !== true) throw new WaybillError('INVALID_OPTION', `${component}.${key}: ${verdict}, got ${show(value)}.`)
    options[key] = value
  }
  return options
}

/** Throws INVALID_OPTION if `given` is no object or has a key that is not `known`, and names the one that was probably meant. */
export function refuseUnknown(component: string, given: object, known: readonly string[]): void {
  if (given === null || typeof given !== 'object') {
    throw new WaybillError('INVALID_OPTION', `${component}: options must be an object, got ${show(given)}.`)
  }
  for (const key of Object.keys(given)) {
    if (known.includes(key)) continue
    const near = nearest(key, known)
    const hint = near === undefined ? '' : ` Did you mean "${near}"?`
    throw new WaybillError(
      'INVALID_OPTION',
      `${component}.${key}: unknown option.${hint} Known: ${[...known].toSorted().join(', ')}.`,
    )
  }
}

/** The known name that needs the fewest edits, if it is close enough to be a slip. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  let best: string | undefined
  let bestDistance = Math.min(word.length, Math.max(2, Math.floor(word.length / 3)) + 1)
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase())
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance]
  }
  return best
}

/** Checks that several options share. */
export const atLeast =
  (min: number): Check<number> =>
  (value) =>
    (Number.isFinite(value) && value >= min) || `must be a number, at least ${min}`

export const wholeBetween =
  (min: number, max: number): Check<number> =>
  (value) =>
    (Number.isSafeInteger(value) && value >= min && value <= max) || `must be a whole number from ${min} to ${max}`

export const oneOf =
  <Value extends string | boolean>(...allowed: Value[]): Check<Value> =>
  (value) =>
    allowed.includes(value) || `must be one of ${allowed.map((each) => JSON.stringify(each)).join(', ')}`

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i += 1) {
    const current = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const substitute = (previous[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      current[j] = Math.min((previous[j] ?? 0) + 1, (current[j - 1] ?? 0) + 1, substitute)
    }
    previous = current
  }
  return previous[b.length] ?? 0
}

function show(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value)
  if (value === null || typeof value === 'number' || typeof value === 'boolean') return String(value)
  return Array.isArray(value) ? 'an array' : typeof value
}

/** Those that fit every field that is named, or all of them. */
export type Chosen<Filter> = { readonly [Field in keyof Filter]: Exclude<Filter[Field], undefined> } | { readonly all: true }

/** The filter that was meant, empty for all; INVALID_OPTION for one that names nothing. */
export function chosen<Filter extends object>(known: readonly string[], given: Chosen<Filter>): Partial<Filter> {
  refuseUnknown('filter', given, [...known, 'all'])
  const fields = Object.entries(given)
  for (const [field, value] of fields)
    if (value === undefined || value === null || value === '')
      throw new WaybillError('INVALID_OPTION', `filter.${field}: it has no value. Leave the field out if it shall not restrict.`)
  if (fields.length === 0)
    throw new WaybillError(
      'INVALID_OPTION',
      `filter: it names nothing. Pass at least one of ${known.join(', ')}, or { all: true } for everything.`,
    )
  if (!('all' in given)) return given
  if (fields.length === 1 && (given.all as unknown) === true) return {}
  throw new WaybillError('INVALID_OPTION', 'filter.all: true stands alone. Leave it out to restrict.')
}

/** Makes something once for each object it is made of: what a component derives from its settings, and would else derive with each call. */
export function oncePer<Key extends object, Value>(make: (key: Key) => Value): (key: Key) => Value {
  const made = new WeakMap<Key, Value>()
  return (key) => {
    const before = made.get(key)
    if (before !== undefined) return before
    const value = make(key)
    made.set(key, value)
    return value
  }
}
