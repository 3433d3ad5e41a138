/**
 * An answer as the Response of Fetch.
 */
import type { HttpAnswer } from '../command/http-status.ts'

export function toResponse({ status, headers, body }: HttpAnswer): Response {
  return new Response(body === undefined ? null : JSON.stringify(body), { status, headers })
}
