/**
 * The one error class that the server throws at its own program; clients get an `RpcError`. `code` is a closed union, and the
 * message says what to do.
 */
export type PubsubServerErrorCode = 'INVALID_OPTION' | 'REFUSED' | 'UNAVAILABLE'

export class PubsubServerError extends Error {
  override readonly name: string = 'PubsubServerError'
  readonly code: PubsubServerErrorCode

  constructor(code: PubsubServerErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}
