/**
 * The calls that carry deliveries and acknowledgements, without a generic codec in between.
 *
 * A delivery is written around the message's own bytes; acknowledgement ids are read as lease numbers.
 */
import type { Entry } from '../queue/entry.ts'
import { ackIdBytes, noLease, readAckId, writeAckId } from './ack-id.ts'
import { varintBytes, WireReader, writeVarint } from './wire.ts'

/** Lease numbers in the order given; an id that is none of ours is `noLease` there and kept as text in `malformed`. */
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

/**
 * The received messages of a Pull or StreamingPull response, with `prefix` (other encoded fields) before them.
 * The attempt is the number of failures and this delivery; it is left out without a dead-letter policy.
 */
export function encodeDeliveries(entries: readonly Entry[], reportsAttempts: boolean, prefix?: Buffer): Buffer {
  let size = prefix?.length ?? 0
  for (const entry of entries) {
    const inner = deliveryBytes(entry, reportsAttempts)
    size += 1 + varintBytes(inner) + inner
  }
  const target = Buffer.allocUnsafe(size)
  let at = prefix?.copy(target) ?? 0
  for (const entry of entries) {
    target[at++] = 0x0a
    at = writeVarint(target, deliveryBytes(entry, reportsAttempts), at)
    target[at++] = 0x0a
    target[at++] = ackIdBytes
    at = writeAckId(target, entry.leaseId, at)
    target[at++] = 0x12
    at = writeVarint(target, entry.message.bytes.length, at)
    at += entry.message.bytes.copy(target, at)
    if (reportsAttempts) {
      target[at++] = 0x18
      at = writeVarint(target, entry.failures + 1, at)
    }
  }
  return target
}

export const emptyBytes: Buffer = Buffer.alloc(0)

function deliveryBytes(entry: Entry, reportsAttempts: boolean): number {
  const length = entry.message.bytes.length
  const attempt = reportsAttempts ? 1 + varintBytes(entry.failures + 1) : 0
  return 2 + ackIdBytes + 1 + varintBytes(length) + length + attempt
}

function noAcks(): AckIds {
  return { leaseIds: [], malformed: [] }
}

function readInto(acks: AckIds, reader: WireReader): void {
  const end = reader.lengthEnd()
  const leaseId = readAckId(reader.bytes, reader.position, end)
  acks.leaseIds.push(leaseId)
  if (leaseId === noLease) acks.malformed.push(reader.bytes.toString('utf8', reader.position, end))
  reader.position = end
}

/** Negative numbers come as 64-bit two's complement; anything that large is only ever refused. */
function signed(value: number): number {
  return value > Number.MAX_SAFE_INTEGER ? -1 : value
}
