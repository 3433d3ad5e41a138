/**
 * What an event carries in place of a payload that is kept elsewhere: a few fields of JSON that begin with a fixed mark.
 *
 * A reference names bytes by their hash, never a place: no address, no path. A reader takes only the key that the hash gives
 * in the store it was configured with, so a forged reference leads nowhere else.
 */
import { createHash } from 'node:crypto'
import { decodeJson, encodeJson } from '../core/encoding/codec.ts'
import { WaybillError } from '../core/errors.ts'

export const claimContentType = 'application/vnd.waybill.claim+json'

export interface ClaimReference {
  readonly key: string
  readonly sha256: string
  readonly bytes: number
  /** The MIME type of the bytes that are kept. */
  readonly contentType: string
}

const mark = Buffer.from('{"waybill-claim":1,')

/** Whether these bytes are a reference. Other payloads that begin alike are always kept in the store, so this is exact. */
export function isReference(bytes: Uint8Array): boolean {
  return bytes.length >= mark.length && mark.equals(bytes.subarray(0, mark.length))
}

/** The reference to these bytes. */
export function referTo(bytes: Uint8Array, contentType: string, prefix: string): ClaimReference {
  const sha256 = sha256Of(bytes)
  return { key: keyOf(prefix, sha256), sha256, bytes: bytes.length, contentType }
}

export function encodeReference(reference: ClaimReference): Uint8Array {
  return encodeJson({ 'waybill-claim': 1, ...reference })
}

/** The reference in these bytes, if it is one that this reader may follow; otherwise CORRUPT. */
export function readReference(
  bytes: Uint8Array,
  { prefix, contentType }: { readonly prefix: string; readonly contentType: string },
): ClaimReference {
  const { key, sha256, bytes: size, contentType: kept } = decodeJson(bytes) as Partial<Record<keyof ClaimReference, unknown>>
  if (typeof sha256 !== 'string' || !/^[0-9a-f]{64}$/.test(sha256)) throw corrupt('it has no SHA-256')
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) throw corrupt('it has no size')
  if (key !== keyOf(prefix, sha256)) throw corrupt(`its key is not the one of its hash under "${prefix}" in this reader's store`)
  if (kept !== contentType) throw corrupt(`it keeps another content type than ${contentType}`)
  return { key, sha256, bytes: size, contentType }
}

/** How large the payload is that these bytes refer to, as they say; `undefined` if they do not, or are no reference. */
export function sizeOfReferred(bytes: Uint8Array): number | undefined {
  if (!isReference(bytes)) return undefined
  const size = /"bytes":(\d{1,15})[,}]/.exec(
    Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1'),
  )?.[1]
  return size === undefined ? undefined : Number(size)
}

/** Throws CORRUPT unless these are the bytes that the reference was made for. */
export function assertKept(bytes: Uint8Array, { key, sha256, bytes: size }: ClaimReference): void {
  if (bytes.length === size && sha256Of(bytes) === sha256) return
  throw new WaybillError(
    'CORRUPT',
    `The bytes kept as ${key} are not those that were written: somebody changed them, or the store lost a part. The event cannot be read; restore the blob, or add the state again.`,
    { details: { key } },
  )
}

/** Two letters first: folders and buckets stay fast with many blobs. */
function keyOf(prefix: string, sha256: string): string {
  return `${prefix}${sha256.slice(0, 2)}/${sha256}`
}

function sha256Of(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

function corrupt(why: string): WaybillError {
  return new WaybillError(
    'CORRUPT',
    `The reference in this event is not followed: ${why}. Writer and readers need the same prefix and codec; otherwise somebody forged it.`,
  )
}
