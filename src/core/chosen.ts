/**
 * Which of many an action is for, said outright: what a caller forgot, or misspelt, never means all of them.
 *
 * A field that is left out does not restrict. One that is named has a value: `{ eventId: query.id }` without an id means
 * nothing that anybody wants, alone or beside other fields. All of them are asked for by `{ all: true }`.
 */
import { WaybillError } from './errors.ts'
import { refuseUnknown } from './options.ts'

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
