/**
 * Large payloads by claim check: `state(claimCheck(jsonCodec(schema), { store }))`.
 *
 * What is larger than the threshold goes to the store first, under the hash of its bytes; the event carries a reference of
 * some 250 bytes. Smaller payloads travel as ever, so a stream can begin to use this at any time. `outbox.add` keeps the bytes
 * before its transaction commits: a crash in between leaves bytes that nobody refers to, never a reference to nothing.
 *
 * Readers follow a reference only into their own store, and take only bytes of the right size and hash. A store that does
 * not answer is UNAVAILABLE: to a writer inside its transaction, where the change can be refused; to a reader, who tries again.
 */
import type { BlobStore } from '../core/encoding/blob-store.ts'
import type { Codec } from '../core/encoding/codec.ts'
import { defaults } from '../core/defaults.ts'
import { isWaybillError, WaybillError } from '../core/errors.ts'
import { resolve, wholeBetween } from '../core/options.ts'
import {
  assertKept,
  claimContentType,
  encodeReference,
  isReference,
  readReference,
  referTo,
  sizeOfReferred,
  type ClaimReference,
} from './claim-reference.ts'

export interface ClaimCheckOptions {
  readonly store: BlobStore
  /** Payloads of more bytes are kept in the store. Leave room for headers below the stream's `maxBytes`. @default 256_000 */
  readonly thresholdBytes?: number
  /** The largest payload that is written or read. @default 104_857_600 */
  readonly maxBytes?: number
  /** What the keys of these blobs begin with. Readers need the same. @default 'claims/' */
  readonly prefix?: string
  /** How long the store may take for one payload; a writer's transaction is open meanwhile. @default 10_000 */
  readonly timeoutMs?: number
}

type Settings = Required<ClaimCheckOptions>

/** Wraps a codec, so that large payloads are kept in a store and the event carries a reference. */
export function claimCheck<Input, Output>(codec: Codec<Input, Output>, options: ClaimCheckOptions): Codec<Input, Output> {
  const settings = resolveOptions(options)
  const { thresholdBytes, maxBytes, prefix } = settings
  return {
    contentType: codec.contentType,
    contentTypeOf: (bytes) => (isReference(bytes) ? claimContentType : codec.contentType),
    sizeOf: (bytes) => Math.min(sizeOfReferred(bytes) ?? bytes.length, maxBytes),
    validate: (data) => codec.validate(data),
    encode: async (data, of) => {
      const bytes = await codec.encode(data, of)
      if (bytes.length > maxBytes) throw tooLarge(bytes.length, maxBytes)
      // What looks like a reference is kept as well, so that a reader never takes it for one.
      if (bytes.length <= thresholdBytes && !isReference(bytes)) return bytes
      const reference = referTo(bytes, codec.contentType, prefix)
      await inTime(settings, 'keep', (signal) => settings.store.put(reference.key, bytes, { signal }))
      return encodeReference(reference)
    },
    decode: async (bytes, schemaVersion, of) =>
      await codec.decode(
        isReference(bytes) ? await redeem(readReference(bytes, { prefix, contentType: codec.contentType }), settings) : bytes,
        schemaVersion,
        of,
      ),
  }
}

/** The bytes that a reference stands for. */
async function redeem(reference: ClaimReference, settings: Settings): Promise<Uint8Array> {
  if (reference.bytes > settings.maxBytes) throw tooLarge(reference.bytes, settings.maxBytes)
  const { key, bytes: maxBytes } = reference
  const bytes = await inTime(settings, 'return', (signal) => settings.store.get(key, { signal, maxBytes }))
  if (bytes === undefined) {
    throw new WaybillError(
      'NOT_FOUND',
      `The store has no ${key}: it was expired before this event was read, or this is not the writer's store. Restore it, or add the state again.`,
      { retryable: true, details: { key } },
    )
  }
  assertKept(bytes, reference)
  return bytes
}

/** Whatever a store throws, or if it does not answer in time, is UNAVAILABLE, unless the store says better. */
async function inTime<Result>(
  { timeoutMs }: Settings,
  what: 'keep' | 'return',
  call: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const late = new AbortController()
  const { promise: expired, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => {
    reject(new WaybillError('TIMEOUT', `no answer in ${timeoutMs} ms`))
    late.abort()
  }, timeoutMs)
  try {
    return await Promise.race([call(late.signal), expired])
  } catch (cause) {
    if (isWaybillError(cause) && cause.code !== 'TIMEOUT') throw cause
    const why = late.signal.aborted ? `it did not answer in ${timeoutMs} ms` : 'it failed'
    throw new WaybillError('UNAVAILABLE', `The blob store could not ${what} a large payload: ${why}. Try again.`, { cause })
  } finally {
    clearTimeout(timer)
  }
}

function tooLarge(bytes: number, maxBytes: number): WaybillError {
  return new WaybillError(
    'TOO_LARGE',
    `The payload has ${bytes} bytes; this claim check takes ${maxBytes}. Raise its maxBytes, or send less.`,
  )
}

function resolveOptions(given: ClaimCheckOptions): Settings {
  return resolve<Settings>('claimCheck', { store: given.store, ...defaults.claimCheck }, given, {
    store: (store) =>
      (typeof store?.put === 'function' && typeof store.get === 'function') || 'must have put and get, such as fileBlobStore(…)',
    thresholdBytes: wholeBetween(0, 1_000_000_000),
    maxBytes: wholeBetween(1, 1_000_000_000),
    prefix: (prefix) =>
      /^(?:[a-z0-9][a-z0-9_-]*\/)*$/.test(prefix) || 'must be names that each end with "/", such as "orders/claims/"',
    timeoutMs: wholeBetween(1, 600_000),
  })
}
