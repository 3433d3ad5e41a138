/**
 * A message the server has accepted: encoded once, shared by every subscription that holds it.
 *
 * Messages of a publish lie side by side in blocks, each in the form in which it is delivered, with room for the
 * acknowledgement id. A chunk of deliveries is thus a few large copies. Blocks are small, so that one message that
 * stays long keeps little else in memory.
 *
 * A message's number orders it among all messages of the server and is its id on the wire. Numbers start from the
 * clock at each start, so an id is never given twice, not even to a message whose publisher died unconfirmed.
 */
import { digitBytes, formatDigits, writeDigits } from '../protocol/digits.ts'
import { measureMessage, readAttributes } from '../protocol/publish-codec.ts'
import { varintBytes, writeVarint } from '../protocol/wire.ts'

/** What the messages of one block have in common. */
export interface Block {
  readonly bytes: Buffer
  readonly publishMs: number
  readonly firstNumber: number
}

export class Message {
  readonly block: Block
  readonly index: number
  /** Where its delivery starts in the block; it ends where the message does. */
  readonly frameStart: number
  readonly start: number
  readonly end: number
  readonly orderingKey: string
  #attributes: ReadonlyMap<string, string> | undefined

  constructor(block: Block, index: number, place: { frameStart: number; start: number; end: number }, orderingKey: string) {
    this.block = block
    this.index = index
    this.frameStart = place.frameStart
    this.start = place.start
    this.end = place.end
    this.orderingKey = orderingKey
  }

  get number(): number {
    return this.block.firstNumber + this.index
  }

  get publishMs(): number {
    return this.block.publishMs
  }

  get byteLength(): number {
    return this.end - this.start
  }

  /** The encoded PubsubMessage, with id and publish time. */
  get bytes(): Buffer {
    return this.block.bytes.subarray(this.start, this.end)
  }

  get id(): string {
    return formatDigits(this.number)
  }

  /** Decoded when first asked for: only filters and dead-lettering look at them. */
  get attributes(): ReadonlyMap<string, string> {
    return (this.#attributes ??= readAttributes(this.bytes))
  }
}

/** Where the encoded form of a message to be accepted lies, without id and time. */
export interface Encoded {
  readonly source: Buffer
  readonly start: number
  readonly end: number
  readonly orderingKey: string
}

export interface Stamp {
  readonly firstNumber: number
  readonly publishMs: number
  /** Encoded fields that are appended to each message. */
  readonly extra?: Buffer
}

const blockBytes = 16 * 1024

/** The bytes of a delivery before its acknowledgement id: tag, length, tag, length. */
const ackIdHead = [0x0a, digitBytes] as const

/** Gives each message its number and time. The bytes are copied, so that the request they came in can go. */
export function acceptMessages(encoded: readonly Encoded[], stamp: Stamp): Message[] {
  const tail = encodeTail(stamp)
  const messages: Message[] = []
  for (let from = 0; from < encoded.length;) {
    let size = 0
    let to = from
    while (to < encoded.length) {
      const next = frameBytes(encoded[to] as Encoded, tail.length)
      if (to > from && size + next > blockBytes) break
      size += next
      to += 1
    }
    const bytes = Buffer.allocUnsafeSlow(size)
    const block = { bytes, publishMs: stamp.publishMs, firstNumber: stamp.firstNumber + from }
    let at = 0
    for (let index = 0; index < to - from; index += 1) {
      const message = writeFrame(block, index, encoded[from + index] as Encoded, { at, tail })
      messages.push(message)
      at = message.end
    }
    from = to
  }
  return messages
}

/** A message read back from the log, where it has its id and time. */
export function restoreMessage(number: number, publishMs: number, bytes: Buffer): Message {
  const { orderingKey } = measureMessage(bytes, 0, bytes.length)
  const encoded: Encoded = { source: bytes, start: 0, end: bytes.length, orderingKey }
  const block = { bytes: Buffer.allocUnsafeSlow(frameBytes(encoded, 0)), publishMs, firstNumber: number }
  return writeFrame(block, 0, encoded, { at: 0, tail: null })
}

/** Id and publish time as encoded fields, and what else is appended; the digits of the id are filled in per message. */
function encodeTail({ publishMs, extra }: Stamp): Buffer {
  const seconds = Math.floor(publishMs / 1000)
  const nanos = Math.round((publishMs - seconds * 1000) * 1e6)
  const timeBytes = 2 + varintBytes(seconds) + varintBytes(nanos)
  const target = Buffer.allocUnsafe(2 + digitBytes + 2 + timeBytes + (extra?.length ?? 0))
  target[0] = 0x1a
  target[1] = digitBytes
  let at = 2 + digitBytes
  target[at++] = 0x22
  target[at++] = timeBytes
  target[at++] = 0x08
  at = writeVarint(target, seconds, at)
  target[at++] = 0x10
  at = writeVarint(target, nanos, at)
  extra?.copy(target, at)
  return target
}

function frameBytes({ start, end }: Encoded, tailBytes: number): number {
  const inner = innerBytes(end - start + tailBytes)
  return 1 + varintBytes(inner) + inner
}

function innerBytes(length: number): number {
  return ackIdHead.length + digitBytes + 1 + varintBytes(length) + length
}

/** Writes one delivery: `received_messages { ack_id, message }`. */
function writeFrame(block: Block, index: number, encoded: Encoded, place: { at: number; tail: Buffer | null }): Message {
  const { bytes } = block
  const { source, start: from, end: to } = encoded
  const length = to - from + (place.tail?.length ?? 0)
  let at = place.at
  bytes[at++] = 0x0a
  at = writeVarint(bytes, innerBytes(length), at)
  bytes[at++] = ackIdHead[0]
  bytes[at++] = ackIdHead[1]
  at += digitBytes
  bytes[at++] = 0x12
  at = writeVarint(bytes, length, at)
  const start = at
  at += source.copy(bytes, at, from, to)
  if (place.tail !== null) {
    bytes.set(place.tail, at)
    writeDigits(bytes, block.firstNumber + index, at + 2)
    at += place.tail.length
  }
  return new Message(block, index, { frameStart: place.at, start, end: at }, encoded.orderingKey)
}
