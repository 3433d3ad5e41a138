/**
 * What a repeat is told about a request that has committed: the same response, the same rejection, or only that it happened.
 */
import { isWaybillError } from '../../core/errors.ts'
import { first } from '../../postgres/query/database.ts'
import type { Admitted } from './admit.ts'
import type { Aggregate } from '../model/aggregate.ts'
import { selectVersions } from '../model/command.sql.ts'
import { failed, type Outcome } from '../model/outcome.ts'
import type { Pipeline } from './run.ts'
import { readRejection } from '../model/rejection.ts'
import type { ResponseContext } from '../model/response-codec.ts'

/** What was found, in the cache or in the marker. An empty response stands for `undefined`. */
export interface Found {
  readonly from: 'cache' | 'marker'
  readonly fingerprint: string
  readonly rejected: boolean
  readonly response?: string | null
  readonly token?: string | null
}

export async function committedOutcome(pipeline: Pipeline, asked: Admitted, found: Found): Promise<Outcome> {
  if (found.fingerprint !== asked.fingerprint) {
    return failed(
      'KEY_REUSED',
      `The request id was used before for another command or another input. Use a new id for a new request.`,
    )
  }
  const { token = null } = found
  const kept = await keptResponse(pipeline, asked, found)
  if (kept === 'unreachable')
    return failed(
      'UNAVAILABLE',
      'The command was answered before, and its answer cannot be read now. Send the same request again.',
    )
  const { response } = kept
  if (found.rejected && (found.response ?? null) !== null) {
    const rejection = response === null ? undefined : readRejection(response)
    const { reason, details } = rejection ?? { reason: 'not-kept', details: {} }
    return { status: 'rejected', reason, details, replayed: true }
  }
  if (response !== null && !found.rejected) {
    return { status: 'replayed', response: parseResponse(response), token: token ?? undefined, from: found.from }
  }
  return failed('ALREADY_COMMITTED', 'The command was committed before, and its response was not kept. Read the state instead.', {
    token: asked.invalid === undefined ? await currentToken(pipeline, asked.definition.aggregate?.(asked.input)) : undefined,
  })
}

/** The JSON that was kept, null if there is none, or if it cannot be read any more. */
async function keptResponse(
  { responses }: Pipeline,
  asked: Admitted,
  { response }: Found,
): Promise<{ readonly response: string | null } | 'unreachable'> {
  if (response === undefined || response === null) return { response: null }
  try {
    const json = (await responses.decode(response, responseContext(asked))) ?? null
    if (json !== null) parseResponse(json)
    return { response: json }
  } catch (error) {
    return error instanceof SyntaxError || (isWaybillError(error) && !error.retryable) ? { response: null } : 'unreachable'
  }
}

/** What a response codec is told of the request. */
export function responseContext({ definition, principal, requestId = '' }: Admitted): ResponseContext {
  return { command: definition.name, principal, requestId }
}

/** The response as every caller sees it, the first one included: what JSON kept of it. */
export function parseResponse(text: string): unknown {
  return text === '' ? undefined : (JSON.parse(text) as unknown)
}

/** The token of the aggregate's current version, if it has one and the database can be asked. */
export async function currentToken(
  { db, tables, tokens }: Pick<Pipeline, 'db' | 'tables' | 'tokens'>,
  aggregate: Aggregate | undefined,
): Promise<string | undefined> {
  if (aggregate === undefined) return undefined
  // A missing token is no reason to hide that the command was committed.
  const row = await first(db, selectVersions(tables, [aggregate])).catch(() => undefined)
  return row === undefined || row.version === '0'
    ? undefined
    : tokens.encode({ aggregateType: aggregate.type, aggregateId: aggregate.id, version: BigInt(row.version) })
}
