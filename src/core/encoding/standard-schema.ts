/**
 * The Standard Schema interface (https://standardschema.dev), as far as we use it.
 *
 * Zod, Valibot, ArkType and others implement it, so that payloads are validated by whatever library the user has.
 */

export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>
    readonly types?: { readonly input: Input; readonly output: Output } | undefined
  }
}

export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] }

export interface StandardIssue {
  readonly message: string
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined
}

/** One line for people: where in the payload, and what the schema's own message says of it. We add no values: they may be secrets. */
export function describeIssues(issues: readonly StandardIssue[]): string {
  const lines = issues.slice(0, 5).map(({ message, path }) => {
    const where = (path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.')
    return where === '' ? message : `${where}: ${message}`
  })
  const more = issues.length > lines.length ? `; and ${issues.length - lines.length} more` : ''
  return lines.join('; ') + more
}
