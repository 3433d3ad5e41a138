/**
 * What the log consists of, and how it looks on disk.
 *
 *   frame = length of body (u32) · CRC-32 of body (u32) · body          all little-endian
 *   body  = kind (u8) · its content
 *
 * A frame is whole or it does not count: reading stops at the first one that is cut short or damaged, which is where
 * a killed process stopped writing.
 */
import { crc32 } from 'node:zlib'
import type { ResourceType, Retained } from '../model/journal.ts'
import type { Message } from '../model/message.ts'

export type Record =
  | { readonly kind: 'put'; readonly type: ResourceType; readonly name: string; readonly value: unknown }
  | { readonly kind: 'remove'; readonly type: ResourceType; readonly name: string }
  /** Messages published to a topic: to each subscription it has at that moment. */
  | { readonly kind: 'publish'; readonly topic: string; readonly messages: readonly LoggedMessage[] }
  | { readonly kind: 'settle'; readonly subscription: string; readonly numbers: readonly number[] }
  /** All that a subscription holds from here on. */
  | { readonly kind: 'reset'; readonly subscription: string; readonly messages: readonly LoggedMessage[] }
  /** What a topic keeps for seeking. */
  | { readonly kind: 'keep'; readonly topic: string; readonly messages: readonly LoggedMessage[] }
  | {
      readonly kind: 'snapshot'
      readonly resource: unknown
      readonly takenAt: number
      readonly messages: readonly LoggedMessage[]
    }

export interface LoggedMessage {
  readonly number: number
  readonly publishMs: number
  readonly isAcked: boolean
  readonly bytes: Buffer
}

const kinds = ['put', 'remove', 'publish', 'settle', 'reset', 'keep', 'snapshot'] as const
const messageHeadBytes = 21

/** A frame as the pieces to write one after another; message bytes are not copied. */
export function encodeRecord(record: Record): Buffer[] {
  const kind = Buffer.from([kinds.indexOf(record.kind)])
  const body = [kind, ...content(record)]
  let length = 0
  let checksum = 0
  for (const part of body) {
    length += part.length
    checksum = crc32(part, checksum)
  }
  const head = Buffer.allocUnsafe(8)
  head.writeUInt32LE(length, 0)
  head.writeUInt32LE(checksum, 4)
  return [head, ...body]
}

/** The whole records at the start of `bytes`, and where they end. */
export function* decodeRecords(bytes: Buffer): Generator<Record> {
  let at = 0
  while (at + 8 <= bytes.length) {
    const length = bytes.readUInt32LE(at)
    const body = bytes.subarray(at + 8, at + 8 + length)
    if (length === 0 || body.length < length || crc32(body) !== bytes.readUInt32LE(at + 4)) return
    yield decodeBody(body)
    at += 8 + length
  }
}

export function toLogged(message: Message, isAcked = false): LoggedMessage {
  return { number: message.number, publishMs: message.publishMs, isAcked, bytes: message.bytes }
}

export function toLoggedList(retained: readonly Retained[]): LoggedMessage[] {
  return retained.map(({ message, isAcked }) => toLogged(message, isAcked))
}

function content(record: Record): Buffer[] {
  switch (record.kind) {
    case 'put':
      return [json({ type: record.type, name: record.name, value: record.value })]
    case 'remove':
      return [json({ type: record.type, name: record.name })]
    case 'settle':
      return [json(record.subscription), numbers(record.numbers)]
    case 'snapshot':
      return [json({ resource: record.resource, takenAt: record.takenAt }), ...messageList(record.messages)]
    case 'reset':
      return [json(record.subscription), ...messageList(record.messages)]
    default:
      return [json(record.topic), ...messageList(record.messages)]
  }
}

function decodeBody(body: Buffer): Record {
  const kind = kinds[body[0] ?? 0] ?? 'put'
  const jsonEnd = 5 + body.readUInt32LE(1)
  const head = JSON.parse(body.toString('utf8', 5, jsonEnd)) as never
  const rest = body.subarray(jsonEnd)
  switch (kind) {
    case 'put':
    case 'remove':
      return { kind, ...(head as { type: ResourceType; name: string; value: unknown }) }
    case 'settle':
      return { kind, subscription: head, numbers: readNumbers(rest) }
    case 'snapshot':
      return { kind, ...(head as { resource: unknown; takenAt: number }), messages: readMessages(rest) }
    case 'reset':
      return { kind, subscription: head, messages: readMessages(rest) }
    default:
      return { kind, topic: head, messages: readMessages(rest) }
  }
}

function json(value: unknown): Buffer {
  const text = Buffer.from(JSON.stringify(value))
  const length = Buffer.allocUnsafe(4)
  length.writeUInt32LE(text.length)
  return Buffer.concat([length, text])
}

function numbers(values: readonly number[]): Buffer {
  const target = Buffer.allocUnsafe(values.length * 8)
  values.forEach((value, index) => target.writeDoubleLE(value, index * 8))
  return target
}

function readNumbers(bytes: Buffer): number[] {
  return Array.from({ length: bytes.length / 8 }, (_, index) => bytes.readDoubleLE(index * 8))
}

function messageList(messages: readonly LoggedMessage[]): Buffer[] {
  const parts: Buffer[] = []
  const heads = Buffer.allocUnsafe(messages.length * messageHeadBytes)
  messages.forEach((message, index) => {
    const at = index * messageHeadBytes
    heads.writeDoubleLE(message.number, at)
    heads.writeDoubleLE(message.publishMs, at + 8)
    heads.writeUInt32LE(message.bytes.length, at + 16)
    heads[at + 20] = message.isAcked ? 1 : 0
    parts.push(heads.subarray(at, at + messageHeadBytes), message.bytes)
  })
  return parts
}

function readMessages(bytes: Buffer): LoggedMessage[] {
  const messages: LoggedMessage[] = []
  for (let at = 0; at < bytes.length;) {
    const start = at + messageHeadBytes
    const end = start + bytes.readUInt32LE(at + 16)
    messages.push({
      number: bytes.readDoubleLE(at),
      publishMs: bytes.readDoubleLE(at + 8),
      isAcked: bytes[at + 20] === 1,
      bytes: bytes.subarray(start, end),
    })
    at = end
  }
  return messages
}
