/**
 * Text that came from elsewhere, made fit for Postgres: without NUL, which no text may hold, and without half a surrogate pair,
 * which no JSON may.
 */
import { redactSecrets } from '../../core/redact.ts'

export function storableText(text: string): string {
  return text.replaceAll('\u0000', '').toWellFormed()
}

/** The text of an error as the tables keep it: storable, without the secrets it quotes, and bounded. */
export function storableError(text: string): string {
  return storableText(redactSecrets(text)).slice(0, longestError)
}

const longestError = 2_000
