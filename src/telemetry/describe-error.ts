/**
 * An error as fields of a log entry, without what it must not tell.
 *
 * Errors quote statements, values and addresses. By default only the class and the code are kept; as text, secrets are
 * masked and the rest is cut.
 */
import { errorMessage } from '../core/errors.ts'
import { redactSecrets } from '../core/redact.ts'

export interface DescribedError {
  readonly error_type?: string
  readonly error_code?: string
  readonly error?: string
}

const longestText = 500

/** Its class and code; with `text` also what it said. */
export function describeError(error: unknown, as: 'code' | 'text'): DescribedError {
  if (error === undefined) return {}
  const isError = error instanceof Error
  const { code } = (isError ? error : {}) as { readonly code?: unknown }
  return {
    ...(isError ? { error_type: error.name } : {}),
    ...(typeof code === 'string' && /^[A-Za-z0-9_.-]{1,64}$/.test(code) ? { error_code: code } : {}),
    ...(as === 'text' ? { error: redactSecrets(errorMessage(error)).slice(0, longestText) } : {}),
  }
}
