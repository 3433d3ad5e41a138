/**
 * What is kept of a command's answer for its repeats, in the marker and in the cache, as another text: a hook for encryption.
 *
 * The first caller gets the answer itself. A text that cannot be read any more is told to a repeat as one that was not kept:
 * ALREADY_COMMITTED, never a failure.
 */

/** The request whose answer it is: what an encryption binds its text to. */
export interface ResponseContext {
  readonly command: string
  readonly principal: string
  readonly requestId: string
}

export interface ResponseCodec {
  /** The text to keep, of JSON. In the command's transaction: an error rolls it back. */
  encode(json: string, of: ResponseContext): string | Promise<string>
  /** The JSON of a text that was kept; `undefined` if it cannot be read any more. An error that passes is UNAVAILABLE, with `retryable`. */
  decode(text: string, of: ResponseContext): string | undefined | Promise<string | undefined>
}

/** Keeps the JSON as it is. */
export const plainResponses: ResponseCodec = { encode: (json) => json, decode: (text) => text }
