/**
 * The port for bytes that are too large for an event: what a claim check keeps them in.
 *
 * A key is made from the hash of its bytes, so the same key always means the same bytes, and writing twice is harmless.
 * `put` resolves only when the bytes are durable: the event that refers to them commits after that.
 */
import { WaybillError } from '../errors.ts'

export interface BlobStore {
  /** Keeps the bytes under the key. Bytes that are there already count as new from now on, so that they are not expired. */
  put(key: string, bytes: Uint8Array, options: BlobCallOptions): Promise<void>
  /** The bytes, or `undefined` if there are none; CORRUPT, without reading them, if they are more than `maxBytes`. */
  get(key: string, options: BlobCallOptions & { readonly maxBytes: number }): Promise<Uint8Array | undefined>
  /**
   * Removes what was last put more than `olderThanMs` ago, one batch of it, and says how many; 0 if there is nothing left to
   * remove. A `put` at the same time wins. Stores that expire by themselves (a bucket's lifecycle rule) leave it out.
   */
  expire?(olderThanMs: number): Promise<number>
}

export interface BlobCallOptions {
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: AbortSignal
}

/** Names and slashes, so that no key can lead out of a store. */
const blobKeyPattern = /^[a-z0-9][a-z0-9_-]*(?:\/[a-z0-9][a-z0-9_-]*)*$/

/** Throws CORRUPT for what no store takes as a key. */
export function assertBlobKey(key: string): void {
  if (blobKeyPattern.test(key) && key.length <= 512) return
  throw new WaybillError('CORRUPT', 'A blob is named by lower-case names with slashes between them; this key is not.')
}
