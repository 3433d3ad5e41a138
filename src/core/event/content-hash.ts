/**
 * Hashes of content, by which one id with two contents is noticed: by the outbox, and by consumers.
 *
 * That of a fact is of what readers read: of JSON the value, whatever the order of its keys; of other formats the bytes. Its sender
 * makes it. That of any other event is of the bytes, which a relay sends as they were stored however often, and of what the event
 * says of itself. A consumer makes it for every event, so it is short and made in one go.
 */
import { createHash, hash } from 'node:crypto'
import { unlimited } from '../encoding/budget.ts'
import { canonicalText } from '../encoding/canonical.ts'
import { decodeJson, jsonContentType } from '../encoding/codec.ts'

/** The attribute of the message that carries it. */
export const contentHashAttribute = 'content_hash'

/** 32 hexadecimal digits. */
export function contentHash(body: Uint8Array, contentType: string): string {
  const content = contentType === jsonContentType ? canonicalText(decodeJson(body, unlimited), { what: 'the fact' }) : body
  return createHash('sha256').update(content).digest('hex').slice(0, 32)
}

const scratch = Buffer.alloc(65_536)

/** 16 hexadecimal digits. `head` is what the event says of itself; of bodies that differ, one is another event's. */
export function eventHash(head: string, body: Uint8Array): string {
  const most = head.length * 3 + body.byteLength
  const bytes = most <= scratch.byteLength ? scratch : Buffer.alloc(most)
  const bodyStart = bytes.write(head, 'utf8')
  bytes.set(body, bodyStart)
  return hash('sha256', bytes.subarray(0, bodyStart + body.byteLength), 'hex').slice(0, 16)
}
