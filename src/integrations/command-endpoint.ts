/**
 * A command behind HTTP, whatever the framework: reads the key, the principal and the body, runs the command, and answers.
 *
 * `Idempotency-Key` may be quoted, as the IETF draft writes it, or bare. It is scoped by the principal, who is asked for anew with
 * every request: a repeat by somebody else is another request. `If-Match` with a consistency token makes the command depend on
 * that version. A page of another origin cannot use its visitors' cookies (foreign-page.ts). Errors that the command's own code threw are thrown on, for the framework to answer.
 */
import { winnerWait } from '../command/pipeline/admit.ts'
import type { Command } from '../command/model/command.ts'
import type { Commands } from '../command/commands.ts'
import { httpAnswer, problem, tokenHeader, type HttpAnswer } from '../command/http-status.ts'
import { WaybillError } from '../core/errors.ts'
import { refuseUnknown, resolve } from '../core/options.ts'
import { readTokenHeader } from '../projection/token-header.ts'
import { refuseForeignPages, type OriginOptions } from './foreign-page.ts'
import { invalid, readBody } from './read-body.ts'

/** The body of a command is refused above this. */
export const maxCommandBytes = 1_048_576

export interface CommandEndpointOptions<Native, Input> extends OriginOptions {
  /** Who asks; `undefined` is answered with 401. Authorise here: it runs for repeats too. */
  readonly principal: (request: Native) => string | undefined | Promise<string | undefined>
  /** The command's input. @default the body */
  readonly input?: (body: unknown, request: Native) => Input | Promise<Input>
  /** The status of success; with 204, 205 and 304 no response is sent. @default 200, or 204 for a command that returns nothing */
  readonly status?: number
  /** How long a repeat waits for the run that is under way. @default what `createCommands` says */
  readonly waitForWinnerMs?: number
}

/** A request as every framework can show it. */
export interface HttpCall<Native> {
  readonly native: Native
  /** A header by its name in lower case; several of one name joined with ", ". */
  readonly header: (name: string) => string | undefined
  /** The parsed body; throws what it likes if it cannot be parsed. */
  readonly body: () => unknown
  /** Aborts when the client has gone: what waits in line for it leaves the line. */
  readonly signal: AbortSignal | undefined
}

export type CommandEndpoint<Native> = (call: HttpCall<Native>) => Promise<HttpAnswer>

export function commandEndpoint<Native, Input, Response>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Response>,
  options: CommandEndpointOptions<Native, Input>,
): CommandEndpoint<Native> {
  refuseUnknown(`endpoint of ${command.name}`, options, ['principal', 'input', 'status', 'waitForWinnerMs', 'allowedOrigins'])
  assertStatus(command, options.status)
  const { principal: principalOf, input: inputOf = (body: unknown) => body as Input, status, waitForWinnerMs } = options
  resolve(`endpoint of ${command.name}`, { waitForWinnerMs }, { waitForWinnerMs }, winnerWait)
  const foreignPage = refuseForeignPages(`endpoint of ${command.name}`, options.allowedOrigins)
  return async ({ native, header, body, signal }) => {
    const foreign = foreignPage(header)
    if (foreign !== undefined) return foreign
    const principal = await principalOf(native)
    if (principal === undefined) return problem('UNAUTHENTICATED', 401, { detail: 'Sign in, then send the request again.' })
    const requestId = idempotencyKey(header('idempotency-key'))
    const expectedToken = entityTag(header('if-match'))
    if (requestId === null) return invalid('Idempotency-Key must be one quoted string, or one bare word.')
    if (expectedToken === null) return invalid('If-Match must be one quoted consistency token.')
    const token = shownToken(header(tokenHeader))
    if (token === null) return invalid(`${tokenHeader} must be one consistency token, the newest.`)
    const parsed = await readBody({ header, body })
    if ('status' in parsed) return parsed
    const outcome = await commands.run(command, {
      principal,
      requestId,
      input: await inputOf(parsed.value, native),
      expectedToken,
      token,
      trace: { traceparent: header('traceparent'), tracestate: header('tracestate') },
      client: header('user-agent'),
      waitForWinnerMs,
      signal,
    })
    return httpAnswer(outcome, status === undefined ? {} : { status })
  }
}

/** Found out only when a command has committed, it would make an error of a success. */
function assertStatus({ name }: { readonly name: string }, status: number | undefined): void {
  if (status === undefined || (Number.isInteger(status) && status >= 200 && status <= 599)) return
  throw new WaybillError('INVALID_OPTION', `endpoint of ${name}: status must be a whole number from 200 to 599.`)
}

/** `undefined` if there is none, `null` if it is malformed. */
function idempotencyKey(header: string | undefined): string | undefined | null {
  if (header === undefined) return undefined
  const text = header.trim()
  // A quoted string of RFC 9651: printable ASCII, with \" and \\ escaped.
  const quoted = /^"((?:[ !#-[\]-~]|\\["\\])+)"$/.exec(text)?.[1]
  if (quoted !== undefined) return quoted.replaceAll(/\\(["\\])/g, '$1')
  return /^[!#-+\--[\]-~]+$/.test(text) ? text : null
}

/** The token that the client shows; `null` if it shows several: a read by one of them could be older than the others. */
function shownToken(header: string | undefined): string | undefined | null {
  try {
    return readTokenHeader({ [tokenHeader]: header })
  } catch {
    return null
  }
}

function entityTag(header: string | undefined): string | undefined | null {
  return header === undefined ? undefined : (/^\s*"([A-Za-z0-9._~-]+)"\s*$/.exec(header)?.[1] ?? null)
}
