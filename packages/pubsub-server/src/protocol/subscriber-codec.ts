/**
 * The calls that carry deliveries and acknowledgements, without a generic codec in between.
 *
 * A delivery is written around the message's own bytes; acknowledgement ids are read as lease numbers.
 */
import { digitBytes, noNumber, readDigits, writeHalf } from './digits.ts'
import { varintBytes, WireReader, writeVarint } from './wire.ts'

/** Lease numbers in the order given; an id that is none of ours is `noNumber` there and kept as text in `malformed`. */
export interface AckIds {
  readonly leaseIds: number[]
  readonly malformed: string[]
}

export interface AcknowledgeRequest {
  readonly subscription: string
  readonly acks: AckIds
}

export interface ModifyAckDeadlineRequest extends AcknowledgeRequest {
  readonly ackDeadlineSeconds: number
}

export interface StreamingPullRequest {
  readonly subscription: string
  readonly acks: AckIds
  readonly modifySeconds: readonly number[]
  readonly modifyAcks: AckIds
  readonly streamAckDeadlineSeconds: number
  readonly clientId: string
  readonly maxOutstandingMessages: number
  readonly maxOutstandingBytes: number
}

export function decodeAcknowledge(bytes: Buffer): AcknowledgeRequest {
  const reader = new WireReader(bytes)
  const acks = noAcks()
  let subscription = ''
  while (reader.hasMore()) {
    const tag = reader.varint()
    if (tag === 0x0a) subscription = reader.text()
    else if (tag === 0x12) readInto(acks, reader)
    else reader.skip(tag & 7)
  }
  return { subscription, acks }
}

export function decodeModifyAckDeadline(bytes: Buffer): ModifyAckDeadlineRequest {
  const reader = new WireReader(bytes)
  const acks = noAcks()
  let subscription = ''
  let ackDeadlineSeconds = 0
  while (reader.hasMore()) {
    const tag = reader.varint()
    if (tag === 0x0a) subscription = reader.text()
    else if (tag === 0x18) ackDeadlineSeconds = signed(reader.varint())
    else if (tag === 0x22) readInto(acks, reader)
    else reader.skip(tag & 7)
  }
  return { subscription, acks, ackDeadlineSeconds }
}

export function decodeStreamingPull(bytes: Buffer): StreamingPullRequest {
  const reader = new WireReader(bytes)
  const request = {
    subscription: '',
    acks: noAcks(),
    modifySeconds: [] as number[],
    modifyAcks: noAcks(),
    streamAckDeadlineSeconds: 0,
    clientId: '',
    maxOutstandingMessages: 0,
    maxOutstandingBytes: 0,
  }
  while (reader.hasMore()) {
    const tag = reader.varint()
    if (tag === 0x0a) request.subscription = reader.text()
    else if (tag === 0x12) readInto(request.acks, reader)
    else if (tag === 0x18) request.modifySeconds.push(signed(reader.varint()))
    else if (tag === 0x1a) {
      const end = reader.lengthEnd()
      while (reader.position < end) request.modifySeconds.push(signed(reader.varint()))
    } else if (tag === 0x22) readInto(request.modifyAcks, reader)
    else if (tag === 0x28) request.streamAckDeadlineSeconds = signed(reader.varint())
    else if (tag === 0x32) request.clientId = reader.text()
    else if (tag === 0x38) request.maxOutstandingMessages = signed(reader.varint())
    else if (tag === 0x40) request.maxOutstandingBytes = signed(reader.varint())
    else reader.skip(tag & 7)
  }
  return request
}

/** A message under a lease, as much of it as is sent. */
export interface Delivery {
  readonly message: {
    readonly block: { readonly bytes: Buffer }
    readonly frameStart: number
    readonly start: number
    readonly end: number
    readonly byteLength: number
  }
  readonly nonce: number
  readonly slot: number
  readonly failures: number
}

/**
 * The received messages of a Pull or StreamingPull response, with `prefix` (other encoded fields) before them.
 * The attempt is the number of failures and this delivery; it is left out without a dead-letter policy.
 */
export function encodeDeliveries(entries: readonly Delivery[], reportsAttempts: boolean, prefix?: Buffer): Buffer {
  if (reportsAttempts) return Buffer.concat([...(prefix === undefined ? [] : [prefix]), ...entries.map(encodeWithAttempt)])
  let size = prefix?.length ?? 0
  for (const { message } of entries) size += message.end - message.frameStart
  const target = Buffer.allocUnsafeSlow(size)
  let at = prefix?.copy(target) ?? 0
  for (let from = 0; from < entries.length;) {
    const to = endOfRun(entries, from)
    const first = (entries[from] as Delivery).message
    const end = (entries[to - 1] as Delivery).message.end
    first.block.bytes.copy(target, at, first.frameStart, end)
    for (; from < to; from += 1) {
      const entry = entries[from] as Delivery
      writeAckId(target, entry, at + entry.message.start - first.frameStart)
    }
    at += end - first.frameStart
  }
  return target
}

/** Where the entries stop that lie side by side in one block. */
function endOfRun(entries: readonly Delivery[], from: number): number {
  let last = (entries[from] as Delivery).message
  for (let to = from + 1; to < entries.length; to += 1) {
    const { message } = entries[to] as Delivery
    if (message.block !== last.block || message.frameStart !== last.end) return to
    last = message
  }
  return entries.length
}

/** The acknowledgement id stands right before the message's tag and length. */
function writeAckId(target: Buffer, entry: Delivery, messageAt: number): void {
  const at = messageAt - varintBytes(entry.message.byteLength) - 1 - digitBytes
  writeHalf(target, entry.nonce, at)
  writeHalf(target, entry.slot, at + 8)
}

function encodeWithAttempt(entry: Delivery): Buffer {
  const { block, start, end, byteLength } = entry.message
  const attempt = entry.failures + 1
  const messageFieldBytes = 1 + varintBytes(byteLength) + byteLength
  const inner = 2 + digitBytes + messageFieldBytes + 1 + varintBytes(attempt)
  const target = Buffer.allocUnsafe(1 + varintBytes(inner) + inner)
  target[0] = 0x0a
  let at = writeVarint(target, inner, 1)
  target[at++] = 0x0a
  target[at++] = digitBytes
  at += digitBytes
  target[at++] = 0x12
  at = writeVarint(target, byteLength, at)
  writeAckId(target, entry, at)
  at += block.bytes.copy(target, at, start, end)
  target[at++] = 0x18
  writeVarint(target, attempt, at)
  return target
}

export const emptyBytes: Buffer = Buffer.alloc(0)

function noAcks(): AckIds {
  return { leaseIds: [], malformed: [] }
}

function readInto(acks: AckIds, reader: WireReader): void {
  const end = reader.lengthEnd()
  const leaseId = readDigits(reader.bytes, reader.position, end)
  acks.leaseIds.push(leaseId)
  if (leaseId === noNumber) acks.malformed.push(reader.bytes.toString('utf8', reader.position, end))
  reader.position = end
}

/** Negative numbers come as 64-bit two's complement; anything that large is only ever refused. */
function signed(value: number): number {
  return value > Number.MAX_SAFE_INTEGER ? -1 : value
}
