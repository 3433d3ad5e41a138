/**
 * An ingest behind HTTP, whatever the framework:
 *
 *   POST <path>                one fact, the body; 202 with its event id once the broker has confirmed it
 *   POST <path>/batch          a list of facts; each has its own result, and 202 means that all were confirmed
 *   GET  <path>/<business key> whether it was processed; a path segment for each part of the key
 *
 * 429 and 503 come with Retry-After and mean: send the same again. Errors of the functions that were passed in are thrown on, for
 * the framework to answer.
 */
import { problem, type HttpAnswer } from '../command/http-status.ts'
import { errorMeanings, isWaybillError, WaybillError } from '../core/errors.ts'
import { oneOf, resolve } from '../core/options.ts'
import type { FactOutcome, Refused } from '../ingest/fact-outcome.ts'
import type { AcceptOptions, Ingest } from '../ingest/ingest.ts'
import { refuseForeignPages, type OriginOptions } from './foreign-page.ts'
import { invalid, readBody } from './read-body.ts'

export interface IngestEndpointOptions<Native> extends OriginOptions {
  /** Where it is mounted: the path of the server's own address, such as `/readings`. */
  readonly path: string
  /** Who asks; `undefined` is answered with 401. @default anybody may */
  readonly principal?: ((request: Native) => string | undefined | Promise<string | undefined>) | undefined
  /**
   * Whose keys they are; to be said where there is a principal. `principal`: each has keys of its own, and nobody can take or look up
   * another's. `everyone`: the same key by any sender is the same fact, for senders who trust each other. @default 'everyone', without a principal
   */
  readonly scope?: 'everyone' | 'principal' | undefined
}

/** A request as every framework can show it. */
export interface IngestCall<Native> {
  readonly native: Native
  readonly method: string
  /** The address that was asked for, with or without its origin. */
  readonly url: string
  /** A header by its name in lower case. */
  readonly header: (name: string) => string | undefined
  /** The parsed body; throws what it likes if it cannot be parsed. */
  readonly body: () => unknown
}

export type IngestEndpoint<Native> = (call: IngestCall<Native>) => Promise<HttpAnswer>

export function ingestEndpoint<Native>(ingest: Ingest, options: IngestEndpointOptions<Native>): IngestEndpoint<Native> {
  const { path, principal: principalOf, scope, allowedOrigins } = resolveEndpoint(ingest, options)
  const foreignPage = refuseForeignPages(`ingest of ${ingest.event}`, allowedOrigins)
  const prefix = path.replace(/\/+$/, '')
  return async ({ native, method, url, header, body }) => {
    const segments = segmentsBelow(prefix, url)
    const isBatch = segments?.length === 1 && segments[0] === 'batch'
    const isPost = method === 'POST' && (segments?.length === 0 || isBatch)
    if (segments === undefined || !(isPost || (method === 'GET' && segments.length > 0))) return notFound(prefix)
    const foreign = isPost ? foreignPage(header) : undefined
    if (foreign !== undefined) return foreign
    const principal = await principalOf?.(native)
    if (principalOf !== undefined && principal === undefined)
      return problem('UNAUTHENTICATED', 401, { detail: 'Sign in, then send the request again.' })
    const own: AcceptOptions = scope === 'principal' ? { scope: principal } : {}
    if (!isPost) return await statusAnswer(ingest, segments, own)
    // Asked before the body is read, so that an overloaded service does not gather bodies.
    const refusal = ingest.refusal()
    if (refusal !== undefined) return refusedAnswer(refusal)
    const read = await readBody({ header, body })
    if ('status' in read) return read
    return isBatch ? await batchAnswer(ingest, read.value, own) : factAnswer(await ingest.accept(read.value, own))
  }
}

function resolveEndpoint<Native>(
  { event }: Ingest,
  given: IngestEndpointOptions<Native>,
): Required<IngestEndpointOptions<Native>> {
  const component = `ingest of ${event}`
  const options = resolve<Required<IngestEndpointOptions<Native>>>(
    component,
    { path: given.path, principal: undefined, scope: undefined, allowedOrigins: [] },
    given,
    { scope: oneOf('everyone', 'principal') },
  )
  if (typeof options.path !== 'string' || !options.path.startsWith('/'))
    throw new WaybillError('INVALID_OPTION', `${component}.path: must begin with "/", such as "/readings".`)
  if (options.scope === undefined && options.principal !== undefined)
    throw new WaybillError(
      'INVALID_OPTION',
      `${component}.scope: say whose keys they are: 'principal' gives each sender keys of its own; with 'everyone' any sender can take and look up any key.`,
    )
  if (options.scope === 'principal' && options.principal === undefined)
    throw new WaybillError('INVALID_OPTION', `${component}.scope: 'principal' needs the function principal.`)
  return options
}

/** The decoded segments below the prefix, or `undefined` if the address is not below it or not well-formed. */
function segmentsBelow(prefix: string, url: string): readonly string[] | undefined {
  const { pathname } = new URL(url, 'http://localhost')
  if (pathname !== prefix && !pathname.startsWith(`${prefix}/`)) return undefined
  try {
    return pathname
      .slice(prefix.length)
      .split('/')
      .filter((segment) => segment !== '')
      .map(decodeURIComponent)
  } catch {
    return undefined
  }
}

function factAnswer(outcome: FactOutcome): HttpAnswer {
  if (outcome.status === 'refused') return refusedAnswer(outcome)
  return { status: 202, headers: { 'content-type': 'application/json' }, body: { eventId: outcome.eventId } }
}

/** 202 if all were accepted; the refusal's own status if all were refused alike; else 207. */
async function batchAnswer(ingest: Ingest, list: unknown, own: AcceptOptions): Promise<HttpAnswer> {
  const { maxFacts } = ingest.limits
  if (!Array.isArray(list) || list.length === 0) return invalid('The body must be a list of at least one fact.')
  if (list.length > maxFacts)
    return problem('TOO_LARGE', 413, {
      detail: `The list has ${list.length} facts; ${maxFacts} are taken at once.`,
      retryable: false,
    })
  const outcomes = await ingest.acceptMany(list, own)
  const results = outcomes.map(resultOf)
  const statuses = new Set(results.map(({ status }) => status))
  const [first] = outcomes.filter((outcome) => outcome.status === 'refused')
  if (first === undefined || statuses.size > 1) {
    const status = statuses.size > 1 ? 207 : 202
    return { status, headers: { 'content-type': 'application/json', ...retryAfter(outcomes) }, body: { results } }
  }
  const answer = refusedAnswer(first)
  return { ...answer, headers: { ...answer.headers, ...retryAfter(outcomes) }, body: { ...(answer.body as object), results } }
}

function resultOf(outcome: FactOutcome): { readonly status: number } & Record<string, unknown> {
  if (outcome.status === 'accepted') return { status: 202, eventId: outcome.eventId }
  const { code, message: detail, retryable } = outcome
  return { status: errorMeanings[code].http, code, detail, retryable }
}

async function statusAnswer(ingest: Ingest, key: readonly string[], own: AcceptOptions): Promise<HttpAnswer> {
  try {
    const { eventId, processed, conflict } = await ingest.status(key, own)
    if (processed === undefined) return problem('NOT_FOUND', 404, { detail: 'This service cannot tell what was processed.' })
    return {
      status: 200,
      headers: { 'content-type': 'application/json' },
      body: { eventId, processed, ...(conflict ? { conflict } : {}) },
    }
  } catch (error) {
    if (isWaybillError(error, 'INVALID_INPUT')) return invalid(error.message)
    throw error
  }
}

function refusedAnswer(outcome: Refused): HttpAnswer {
  const { code, message: detail, retryable } = outcome
  return problem(code, errorMeanings[code].http, { detail, retryable, headers: retryAfter([outcome]) })
}

/** The longest wait that any of them asks for, in whole seconds. */
function retryAfter(outcomes: readonly FactOutcome[]): Record<string, string> {
  const waits = outcomes.map((outcome) => (outcome.status === 'refused' ? (outcome.retryAfterMs ?? -1) : -1))
  const longestMs = Math.max(...waits)
  return longestMs < 0 ? {} : { 'retry-after': String(Math.max(1, Math.ceil(longestMs / 1_000))) }
}

function notFound(prefix: string): HttpAnswer {
  return problem('NOT_FOUND', 404, {
    detail: `POST ${prefix} or ${prefix}/batch to send facts; GET ${prefix}/<business key> to ask about one.`,
  })
}
