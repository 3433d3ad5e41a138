/** An error as the server reports it: with its five-character code, by which the library tells what it means. */
export class DatabaseFailure extends Error {
  override readonly name: string = 'DatabaseFailure'
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** The connection is gone; what was asked may have happened. */
export function connectionLost(): Error {
  return Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' })
}
