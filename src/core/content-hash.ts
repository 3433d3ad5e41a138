/**
 * The hash of a fact's content, by which one business key with two contents is noticed: by the outbox, and by consumers.
 *
 * It is of what readers read: of JSON the value, whatever the order of its keys; of other formats the bytes.
 */
import { createHash } from 'node:crypto'
import { unlimited } from './budget.ts'
import { canonicalText } from './canonical.ts'
import { decodeJson, jsonContentType } from './codec.ts'

/** The attribute of the message that carries it. */
export const contentHashAttribute = 'content_hash'

/** 32 hexadecimal digits. */
export function contentHash(body: Uint8Array, contentType: string): string {
  const content = contentType === jsonContentType ? canonicalText(decodeJson(body, unlimited), { what: 'the fact' }) : body
  return createHash('sha256').update(content).digest('hex').slice(0, 32)
}
