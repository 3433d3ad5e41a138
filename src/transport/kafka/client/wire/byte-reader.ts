/**
 * Reads Kafka's numbers and fields from a buffer, one after the other, and nothing behind its end: bytes that are damaged are
 * refused, and never read for ever.
 */
import { isUtf8 } from 'node:buffer'
import { WaybillError } from '../../../../core/errors.ts'

/** A number of 64 bits has no more, seven bits a byte. */
const longestVarint = 10

export class ByteCursor {
  readonly bytes: Buffer
  position: number
  readonly end: number

  constructor(bytes: Buffer, position = 0, end: number = bytes.length) {
    this.bytes = bytes
    this.position = position
    this.end = end
  }

  get left(): number {
    return this.end - this.position
  }

  skip(count: number): void {
    if (count < 0 || count > this.end - this.position) throw damaged('a field goes beyond its end')
    this.position += count
  }

  int8(): number {
    this.skip(1)
    return this.bytes.readInt8(this.position - 1)
  }

  int16(): number {
    this.skip(2)
    return this.bytes.readInt16BE(this.position - 2)
  }

  int32(): number {
    this.skip(4)
    return this.bytes.readInt32BE(this.position - 4)
  }

  int64(): bigint {
    this.skip(8)
    return this.bytes.readBigInt64BE(this.position - 8)
  }

  /** Unsigned, seven bits a byte. Exact up to 2^53, which no length, count or time comes near. */
  unsigned(): number {
    const end = Math.min(this.end, this.position + longestVarint)
    let value = 0
    let scale = 1
    while (this.position < end) {
      const byte = this.bytes[this.position] as number
      this.position += 1
      if (byte < 128) return value + byte * scale
      value += (byte - 128) * scale
      scale *= 128
    }
    throw damaged('a number has no end')
  }

  /** Signed: 0, 1, 2, 3 … stand for 0, -1, 1, -2 … */
  signed(): number {
    const value = this.unsigned()
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2
  }

  /** A field with its signed length before it; -1 is null. It shares the buffer. */
  field(): Buffer | null {
    const length = this.signed()
    if (length < 0) return null
    this.skip(length)
    return this.bytes.subarray(this.position - length, this.position)
  }

  /**
   * The same, as text; null is empty. Text that is like `last` is `last`: to compare costs less than to make it anew. Bytes that
   * are no UTF-8 stay what they are.
   */
  text(last = ''): string | Buffer {
    const length = this.signed()
    if (length <= 0) return ''
    const start = this.position
    this.skip(length)
    if (this.#spells(last, start, length)) return last
    const text = this.bytes.toString('utf8', start, this.position)
    if (!text.includes('\ufffd')) return text
    const bytes = this.bytes.subarray(start, this.position)
    return isUtf8(bytes) ? text : bytes
  }

  /** Only plain ASCII counts: beyond it a character has other bytes than its code. */
  #spells(text: string, start: number, length: number): boolean {
    if (text.length !== length) return false
    for (let i = 0; i < length; i += 1) {
      const byte = this.bytes[start + i] as number
      if (byte >= 128 || byte !== text.charCodeAt(i)) return false
    }
    return true
  }

  /** The count of a compact array: none and null alike are 0. */
  count(): number {
    return Math.max(0, this.unsigned() - 1)
  }

  /** Fields that later versions added and that we do not know. */
  skipTags(): void {
    for (let tags = this.unsigned(); tags > 0; tags -= 1) {
      this.unsigned()
      this.skip(this.unsigned())
    }
  }
}

/** For bytes that cannot be what a broker was given. */
export function damaged(how: string): WaybillError {
  return new WaybillError('CORRUPT', `what Kafka sent is damaged: ${how}. Check the log of the broker (kafka-dump-log.sh).`)
}
