/**
 * The one error class this package throws, and the one table that gives each code its meaning elsewhere.
 *
 * `code` is a closed union: callers switch on it and the compiler tells them what they forgot. `retryable` says
 * whether the same call may simply be made again. Messages say what happened, to what, and what to do about it.
 */

/** What a code means to a gRPC or Connect client, to an HTTP client, and whether repeating the call can help. */
export interface ErrorMeaning {
  readonly grpc: GrpcCode
  readonly http: number
  readonly retryable: boolean
}

/** The gRPC status names that our codes map to, with their wire numbers. */
export const grpcCodes = {
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
} as const

export type GrpcCode = keyof typeof grpcCodes

/** Every code we throw or answer with. Adding one here is a change of the public contract. */
export const errorMeanings = {
  /** An option, argument or configuration value cannot be used as given. */
  INVALID_OPTION: { grpc: 'INVALID_ARGUMENT', http: 400, retryable: false },
  /** A payload, key, id or token failed validation. */
  INVALID_INPUT: { grpc: 'INVALID_ARGUMENT', http: 400, retryable: false },
  /** A command that needs a request id came without one. */
  REQUEST_ID_MISSING: { grpc: 'INVALID_ARGUMENT', http: 400, retryable: false },
  /** The encoded event is larger than its stream or transport allows. */
  TOO_LARGE: { grpc: 'INVALID_ARGUMENT', http: 413, retryable: false },
  /** An event type, stream, consumer, command or schema version that this process does not know. */
  UNKNOWN_NAME: { grpc: 'NOT_FOUND', http: 404, retryable: false },
  /** The thing asked for does not exist. */
  NOT_FOUND: { grpc: 'NOT_FOUND', http: 404, retryable: false },
  /** A pool, or a client outside a transaction, was passed where a transaction is needed. */
  NOT_A_TRANSACTION: { grpc: 'FAILED_PRECONDITION', http: 500, retryable: false },
  /** The database rolled the transaction back although COMMIT was sent: an error inside was swallowed. */
  TRANSACTION_ABORTED: { grpc: 'ABORTED', http: 500, retryable: false },
  /** The connection broke during COMMIT, and nobody could find out whether it took effect. */
  COMMIT_UNKNOWN: { grpc: 'UNAVAILABLE', http: 503, retryable: false },
  /** The same request is being executed right now; ask again with the same key. */
  IN_PROGRESS: { grpc: 'ABORTED', http: 409, retryable: true },
  /** The command was committed before, and its response was not kept: read the state instead. */
  ALREADY_COMMITTED: { grpc: 'ALREADY_EXISTS', http: 409, retryable: false },
  /** The request id was used before with another payload or another command. */
  KEY_REUSED: { grpc: 'INVALID_ARGUMENT', http: 422, retryable: false },
  /** A fact with the same business key was recorded before, with other content. */
  FACT_CONFLICT: { grpc: 'ALREADY_EXISTS', http: 409, retryable: false },
  /** Others kept changing the aggregate; every attempt lost the race. */
  VERSION_CONFLICT: { grpc: 'ABORTED', http: 409, retryable: true },
  /** The version the client expected is not the current one. */
  PRECONDITION_FAILED: { grpc: 'FAILED_PRECONDITION', http: 412, retryable: false },
  /** A version of an aggregate was given out of turn. */
  VERSION_OUT_OF_ORDER: { grpc: 'FAILED_PRECONDITION', http: 409, retryable: false },
  /** The projection has not reached the token yet. */
  NOT_YET: { grpc: 'UNAVAILABLE', http: 503, retryable: true },
  /** A service we need is down, slow or unreachable. */
  UNAVAILABLE: { grpc: 'UNAVAILABLE', http: 503, retryable: true },
  /** The caller's own limit or deadline was reached. */
  TIMEOUT: { grpc: 'DEADLINE_EXCEEDED', http: 504, retryable: true },
  /** Too much is under way already. */
  OVERLOADED: { grpc: 'RESOURCE_EXHAUSTED', http: 429, retryable: true },
  /** The broker refused this very message, and would refuse it again. */
  REJECTED: { grpc: 'INVALID_ARGUMENT', http: 422, retryable: false },
  /** The database schema is missing, older or newer than this process can work with. */
  SCHEMA_MISMATCH: { grpc: 'FAILED_PRECONDITION', http: 500, retryable: false },
  /** The schema belongs to another service, or is a copy of another deployment's. */
  WRONG_DEPLOYMENT: { grpc: 'FAILED_PRECONDITION', http: 500, retryable: false },
  /** A migration that was applied is not the one in this package. */
  MIGRATION_CHANGED: { grpc: 'FAILED_PRECONDITION', http: 500, retryable: false },
  /** The database role may not do this. */
  FORBIDDEN: { grpc: 'PERMISSION_DENIED', http: 403, retryable: false },
  /** An optional package that this feature needs is not installed. */
  MISSING_PACKAGE: { grpc: 'FAILED_PRECONDITION', http: 500, retryable: false },
  /** The action destroys something and was not confirmed, or is refused in this state. */
  REFUSED: { grpc: 'FAILED_PRECONDITION', http: 409, retryable: false },
  /** Stored data is not what was written: a hash or a reference does not fit. */
  CORRUPT: { grpc: 'DATA_LOSS', http: 500, retryable: false },
  /** The work was given up because the process is stopping, or because its caller gave up. */
  ABORTED: { grpc: 'ABORTED', http: 503, retryable: true },
  /** A defect of this package or an error nobody foresaw. */
  INTERNAL: { grpc: 'INTERNAL', http: 500, retryable: false },
} as const

export type ErrorCode = keyof typeof errorMeanings

export interface WaybillErrorOptions extends ErrorOptions {
  /** Overrides what the table says of the code. */
  readonly retryable?: boolean
  /** Facts that belong to the error: ids, versions, tokens. Never payloads or credentials. */
  readonly details?: Readonly<Record<string, unknown>>
}

/** The only error class we throw. Switch on `code`. */
export class WaybillError extends Error {
  override readonly name: string = 'WaybillError'
  readonly code: ErrorCode
  readonly retryable: boolean
  readonly details: Readonly<Record<string, unknown>>

  constructor(code: ErrorCode, message: string, options: WaybillErrorOptions = {}) {
    super(message, options)
    this.code = code
    this.retryable = options.retryable ?? errorMeanings[code].retryable
    this.details = options.details ?? {}
  }
}

/** By name, not `instanceof`: two copies of this package may be installed side by side. */
export function isWaybillError(error: unknown, code?: ErrorCode): error is WaybillError {
  return error instanceof Error && error.name === 'WaybillError' && (code === undefined || (error as WaybillError).code === code)
}

/** What a code means elsewhere. */
export function meaningOf(code: ErrorCode): ErrorMeaning {
  return errorMeanings[code]
}

/** The text of anything that was thrown; never empty, and it never throws itself. */
export function errorMessage(error: unknown): string {
  if (error instanceof Error && error.message !== '') return error.message
  // A refused connection to a name with several addresses has no message of its own, only those of its parts.
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.map(errorMessage).join('; ')
  try {
    return String(error) || 'an empty error'
  } catch {
    return 'an error that has no text'
  }
}
