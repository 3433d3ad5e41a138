/**
 * The way in: who asks, under which id, for what. Whatever is wrong here is answered before anything is touched.
 */
import { isWaybillError, WaybillError } from '../../core/errors.ts'
import { resolve, wholeBetween, type Check } from '../../core/options.ts'
import type { Tokens } from '../../core/event/token.ts'
import type { TraceHeaders } from '../../core/tracing.ts'
import { parseVersion, type Version } from '../../core/event/version.ts'
import type { Passage } from './gate.ts'
import { definitionOf, type AnyCommand, type CommandDefinition } from '../model/command.ts'
import { failed, type Failed } from '../model/outcome.ts'
import { validInput } from './plan.ts'
import type { RequestIds } from '../model/request-ids.ts'

export interface RunRequest<Input> {
  /** Who asks: a user, a tenant, a service. Request ids of different principals never meet. */
  readonly principal: string
  /** The name under which a repeat is recognised; chosen by the client, new for each new request. */
  readonly requestId?: string | undefined
  readonly input: Input
  /** The version of the aggregate that the client decided by. If it is not the current one, nothing is done. */
  readonly expectedVersion?: Version | string | number | undefined
  /** The same as a consistency token of that aggregate. */
  readonly expectedToken?: string | undefined
  /** The consistency token that the client holds, for `load`: it wants nothing older to be read. */
  readonly token?: string | undefined
  /** The W3C trace headers that the request came with; the active span goes before them. */
  readonly trace?: TraceHeaders | undefined
  /** Which program asks, for the count of missing request ids. @default 'unknown' */
  readonly client?: string | undefined
  /** How long to wait for a run of the same request that is under way. @default 0 */
  readonly waitForWinnerMs?: number | undefined
  /** Ends the wait for a turn: the outcome is ABORTED. What has begun runs to its end. @default none */
  readonly signal?: AbortSignal | undefined
}

/** A request that was let in. */
export interface Admitted {
  readonly definition: CommandDefinition
  readonly principal: string
  readonly requestId: string | undefined
  readonly input: unknown
  readonly fingerprint: string
  readonly expectedVersion: Version | undefined
  /** Why it cannot be executed; it may have been, before. */
  readonly invalid: WaybillError | undefined
  readonly token: string | undefined
  readonly waitForWinnerMs: number
  readonly passage: Passage
}

export interface AdmissionParts {
  readonly fingerprint: (command: string, input: unknown) => string
  readonly requestIds: RequestIds
  readonly tokens: Tokens
  readonly waitForWinnerMs: number
}

/** What may be said about the wait for a winner, wherever it is said: a sleep of NaN ms would last for weeks. */
export const winnerWait: { readonly waitForWinnerMs: Check<number> } = { waitForWinnerMs: wholeBetween(0, 60_000) }

export async function admit(
  parts: AdmissionParts,
  command: AnyCommand,
  request: RunRequest<unknown>,
): Promise<Admitted | Failed> {
  const definition = definitionOf(command)
  const { requestId, client = 'unknown' } = request
  const { waitForWinnerMs } = resolve(
    `run of ${definition.name}`,
    { waitForWinnerMs: parts.waitForWinnerMs },
    { waitForWinnerMs: request.waitForWinnerMs },
    winnerWait,
  )
  if (requestId === undefined && !parts.requestIds.allowMissing(definition, client)) {
    return failed(
      'REQUEST_ID_MISSING',
      `${definition.name} needs a request id (HTTP: the Idempotency-Key header), so that a repeat is recognised.`,
    )
  }
  try {
    const principal = keyText(request.principal, 'principal')
    const known = {
      definition,
      principal,
      requestId: requestId === undefined ? undefined : keyText(requestId, 'request id'),
      fingerprint: parts.fingerprint(definition.name, await identityOf(definition, request.input)),
      token: request.token,
      waitForWinnerMs,
      passage: { command: definition.name, principal, requestId, signal: request.signal, waitedMs: 0 },
    }
    return { ...known, ...(await judgeInput(definition, request, parts.tokens)) }
  } catch (error) {
    if (isWaybillError(error, 'INVALID_INPUT')) return failed('INVALID_INPUT', error.message, { cause: error })
    throw error
  }
}

/** What makes it the same request. It is asked about any input; if it cannot take one that its schema refuses, that is the reason. */
export async function identityOf(definition: CommandDefinition, input: unknown): Promise<unknown> {
  try {
    return await definition.fingerprint(input)
  } catch (error) {
    await validInput(definition, input)
    throw error
  }
}

/** A repeat may be judged differently than the request was: its input by another time, its token by another secret. */
async function judgeInput(
  definition: CommandDefinition,
  request: RunRequest<unknown>,
  tokens: Tokens,
): Promise<Pick<Admitted, 'input' | 'expectedVersion' | 'invalid'>> {
  try {
    const input = await validInput(definition, request.input)
    return { input, expectedVersion: expectedVersion(definition, input, request, tokens), invalid: undefined }
  } catch (error) {
    if (request.requestId === undefined || !isWaybillError(error, 'INVALID_INPUT')) throw error
    return { input: request.input, expectedVersion: undefined, invalid: error }
  }
}

const longestKey = 255

/** Text that fits an index and a log line: no control characters, no half characters. */
function keyText(value: unknown, what: string): string {
  if (typeof value === 'string' && value !== '' && value.length <= longestKey && !/\p{Cc}/u.test(value) && value.isWellFormed())
    return value
  throw new WaybillError(
    'INVALID_INPUT',
    `The ${what} must be text of 1 to ${longestKey} characters without control characters, got ${typeof value === 'string' ? `${value.length} characters` : typeof value}.`,
  )
}

function expectedVersion(
  definition: CommandDefinition,
  input: unknown,
  { expectedVersion: given, expectedToken }: RunRequest<unknown>,
  tokens: Tokens,
): Version | undefined {
  if (given === undefined && expectedToken === undefined) return undefined
  const aggregate = definition.aggregate?.(input)
  if (aggregate === undefined)
    throw new WaybillError('INVALID_INPUT', `${definition.name} has no aggregate whose version could be expected.`)
  if (expectedToken !== undefined) {
    const seen = tokens.decode(expectedToken)
    if (seen.aggregateType === aggregate.type && seen.aggregateId === aggregate.id) return seen.version
    throw new WaybillError('INVALID_INPUT', `The expected token is one of another aggregate than ${definition.name} changes.`)
  }
  // 0 expects an aggregate without events: one that nobody has made yet.
  return given === 0 || given === 0n || given === '0' ? 0n : parseVersion(given, 'expectedVersion')
}
