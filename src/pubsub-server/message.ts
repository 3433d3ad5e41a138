/**
 * A message the server has accepted: encoded once, shared by every subscription that holds it.
 *
 * Its number orders it among all messages of the server and is its id on the wire. Numbers start from the clock at
 * each start, so an id is never given twice, not even to a message whose publisher died before it was confirmed.
 */
import type { IncomingMessage } from './protocol/publish-codec.ts'
import { measureMessage, readAttributes } from './protocol/publish-codec.ts'
import { varintBytes, writeVarint } from './protocol/wire.ts'

export class Message {
  readonly number: number
  readonly publishMs: number
  readonly orderingKey: string
  /** The encoded PubsubMessage, with id and publish time. */
  readonly bytes: Buffer
  #attributes: ReadonlyMap<string, string> | undefined

  constructor(number: number, publishMs: number, orderingKey: string, bytes: Buffer) {
    this.number = number
    this.publishMs = publishMs
    this.orderingKey = orderingKey
    this.bytes = bytes
  }

  get id(): string {
    return String(this.number)
  }

  /** Decoded when first asked for: only filters and dead-lettering look at them. */
  get attributes(): ReadonlyMap<string, string> {
    return (this.#attributes ??= readAttributes(this.bytes))
  }
}

/** The publish time as an encoded field, shared by all messages of one request. */
export function encodePublishTime(publishMs: number): Buffer {
  const seconds = Math.floor(publishMs / 1000)
  const nanos = Math.round((publishMs - seconds * 1000) * 1e6)
  const inner = 2 + varintBytes(seconds) + varintBytes(nanos)
  const target = Buffer.allocUnsafe(2 + inner)
  target[0] = 0x22
  target[1] = inner
  target[2] = 0x08
  const at = writeVarint(target, seconds, 3)
  target[at] = 0x10
  writeVarint(target, nanos, at + 1)
  return target
}

/** Copies a client's message behind its id and time, so that it does not keep the whole request in memory. */
export function acceptMessage(
  incoming: Pick<IncomingMessage, 'bytes' | 'orderingKey'>,
  stamp: { readonly number: number; readonly publishMs: number; readonly timeField: Buffer; readonly extra?: Buffer },
): Message {
  const id = String(stamp.number)
  const extraBytes = stamp.extra?.length ?? 0
  const size = incoming.bytes.length + 2 + id.length + stamp.timeField.length + extraBytes
  const target = Buffer.allocUnsafe(size)
  let at = incoming.bytes.copy(target)
  target[at++] = 0x1a
  target[at++] = id.length
  at += target.write(id, at, 'latin1')
  at += stamp.timeField.copy(target, at)
  stamp.extra?.copy(target, at)
  return new Message(stamp.number, stamp.publishMs, incoming.orderingKey, target)
}

/** A message read back from the log. */
export function restoreMessage(number: number, publishMs: number, bytes: Buffer): Message {
  return new Message(number, publishMs, measureMessage(bytes, 0, bytes.length).orderingKey, Buffer.from(bytes))
}
