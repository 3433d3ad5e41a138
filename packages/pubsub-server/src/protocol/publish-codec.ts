/**
 * Publish requests without decoding their messages.
 *
 * A message stays the bytes it came as; one walk over its fields finds what limits, ordering and filters need.
 * Id and publish time that a client put into a message are cut out: those are the server's to give.
 */
import { isUtf8 } from 'node:buffer'
import { digitBytes, writeDigits } from './digits.ts'
import { varintBytes, WireReader, writeVarint } from './wire.ts'

/** A message as a client sent it: where its encoded bytes lie, and the measures that limits are checked against. */
export interface IncomingMessage {
  readonly source: Buffer
  readonly start: number
  readonly end: number
  readonly dataBytes: number
  readonly attributeCount: number
  readonly longestKeyBytes: number
  readonly longestValueBytes: number
  readonly orderingKey: string
}

export interface PublishRequest {
  /** The length of the whole request as it came. */
  readonly encodedBytes: number
  readonly topic: string
  readonly messages: readonly IncomingMessage[]
}

export function decodePublishRequest(bytes: Buffer): PublishRequest {
  const reader = new WireReader(bytes)
  const messages: IncomingMessage[] = []
  let topic = ''
  while (reader.hasMore()) {
    const tag = reader.varint()
    if (tag === 0x0a) topic = reader.text()
    else if (tag === 0x12) {
      const end = reader.lengthEnd()
      messages.push(measureMessage(bytes, reader.position, end))
      reader.position = end
    } else reader.skip(tag & 7)
  }
  return { encodedBytes: bytes.length, topic, messages }
}

export function encodePublishResponse(response: { readonly messages: readonly { readonly number: number }[] }): Buffer {
  const target = Buffer.allocUnsafe(response.messages.length * (2 + digitBytes))
  let at = 0
  for (const { number } of response.messages) {
    target[at++] = 0x0a
    target[at++] = digitBytes
    at = writeDigits(target, number, at)
  }
  return target
}

/** Walks one encoded PubsubMessage. Strings that are not UTF-8 are refused, as every protobuf runtime does. */
export function measureMessage(bytes: Buffer, start: number, end: number): IncomingMessage {
  const reader = new WireReader(bytes, start, end)
  let kept: Buffer[] | undefined
  let keptFrom = start
  let dataBytes = 0
  let attributeCount = 0
  let longestKeyBytes = 0
  let longestValueBytes = 0
  let orderingKey = ''
  while (reader.hasMore()) {
    const fieldStart = reader.position
    const tag = reader.varint()
    if (tag === 0x0a) {
      const dataEnd = reader.lengthEnd()
      dataBytes = dataEnd - reader.position
      reader.position = dataEnd
    } else if (tag === 0x12) {
      const entry = measureAttribute(reader)
      attributeCount += 1
      longestKeyBytes = Math.max(longestKeyBytes, entry.keyBytes)
      longestValueBytes = Math.max(longestValueBytes, entry.valueBytes)
    } else if (tag === 0x2a) {
      orderingKey = reader.text()
    } else {
      reader.skip(tag & 7)
      if (tag === 0x1a || tag === 0x22) {
        kept ??= []
        kept.push(bytes.subarray(keptFrom, fieldStart))
        keptFrom = reader.position
      }
    }
  }
  const source = kept === undefined ? bytes : Buffer.concat([...kept, bytes.subarray(keptFrom, end)])
  const isWhole = source === bytes
  return {
    source,
    start: isWhole ? start : 0,
    end: isWhole ? end : source.length,
    dataBytes,
    attributeCount,
    longestKeyBytes,
    longestValueBytes,
    orderingKey,
  }
}

/** The attributes of an encoded PubsubMessage; the last of a repeated key counts. */
export function readAttributes(bytes: Buffer): Map<string, string> {
  const attributes = new Map<string, string>()
  const reader = new WireReader(bytes)
  while (reader.hasMore()) {
    const tag = reader.varint()
    if (tag !== 0x12) {
      reader.skip(tag & 7)
      continue
    }
    const entry = new WireReader(bytes, 0, reader.lengthEnd())
    entry.position = reader.position
    reader.position = entry.end
    let key = ''
    let value = ''
    while (entry.hasMore()) {
      const part = entry.varint()
      if (part === 0x0a) key = entry.text()
      else if (part === 0x12) value = entry.text()
      else entry.skip(part & 7)
    }
    attributes.set(key, value)
  }
  return attributes
}

/** The data of an encoded PubsubMessage. */
export function readData(bytes: Buffer): Buffer {
  const reader = new WireReader(bytes)
  let data: Buffer = Buffer.alloc(0)
  while (reader.hasMore()) {
    const tag = reader.varint()
    if (tag === 0x0a) {
      const end = reader.lengthEnd()
      data = bytes.subarray(reader.position, end)
      reader.position = end
    } else reader.skip(tag & 7)
  }
  return data
}

/** One attribute as an encoded field of a PubsubMessage, ready to be appended to it. */
export function encodeAttribute(key: string, value: string): Buffer {
  const keyBytes = Buffer.byteLength(key)
  const valueBytes = Buffer.byteLength(value)
  const inner = 2 + varintBytes(keyBytes) + keyBytes + varintBytes(valueBytes) + valueBytes
  const target = Buffer.allocUnsafe(1 + varintBytes(inner) + inner)
  target[0] = 0x12
  let at = writeVarint(target, inner, 1)
  target[at++] = 0x0a
  at = writeVarint(target, keyBytes, at)
  at += target.write(key, at)
  target[at++] = 0x12
  at = writeVarint(target, valueBytes, at)
  target.write(value, at)
  return target
}

function measureAttribute(reader: WireReader): { keyBytes: number; valueBytes: number } {
  const outerEnd = reader.end
  const end = reader.lengthEnd()
  let keyBytes = 0
  let valueBytes = 0
  reader.end = end
  while (reader.hasMore()) {
    const tag = reader.varint()
    if (tag !== 0x0a && tag !== 0x12) {
      reader.skip(tag & 7)
      continue
    }
    const textEnd = reader.lengthEnd()
    if (!isUtf8(reader.bytes.subarray(reader.position, textEnd))) throw new RangeError('malformed protobuf: string is not UTF-8')
    if (tag === 0x0a) keyBytes = textEnd - reader.position
    else valueBytes = textEnd - reader.position
    reader.position = textEnd
  }
  reader.end = outerEnd
  return { keyBytes, valueBytes }
}
