/**
 * Text that came from elsewhere, made fit for Postgres: without NUL, which no text may hold, and without half a surrogate pair,
 * which no JSON may.
 */
export function storableText(text: string): string {
  return text.replaceAll('\u0000', '').toWellFormed()
}
