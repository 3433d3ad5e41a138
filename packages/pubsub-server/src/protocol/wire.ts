/**
 * Reading and writing the Protocol Buffers wire format by hand, for the few messages on the hot path.
 *
 * A reader walks one buffer and never copies: it hands out positions. Malformed input throws, so a request that
 * is not valid protobuf is refused before anything of it is used.
 */

export class WireReader {
  readonly bytes: Buffer
  position: number
  end: number

  constructor(bytes: Buffer, start = 0, end: number = bytes.length) {
    this.bytes = bytes
    this.position = start
    this.end = end
  }

  hasMore(): boolean {
    return this.position < this.end
  }

  /** Up to 64 bits, as a number: exact to 2^53, and the sign of a 32-bit value is the caller's business. */
  varint(): number {
    let value = 0
    let scale = 1
    for (let length = 0; length < 10; length += 1) {
      if (this.position >= this.end) break
      const byte = this.bytes[this.position++] as number
      value += (byte & 0x7f) * scale
      if (byte < 0x80) return value
      scale *= 128
    }
    throw new RangeError('malformed protobuf: varint')
  }

  /** Reads a length and returns where its bytes end; the reader stands at their start. */
  lengthEnd(): number {
    const length = this.varint()
    const end = this.position + length
    if (end > this.end) throw new RangeError('malformed protobuf: length')
    return end
  }

  text(): string {
    const end = this.lengthEnd()
    const value = this.bytes.toString('utf8', this.position, end)
    this.position = end
    return value
  }

  skip(wireType: number): void {
    if (wireType === 0) this.varint()
    else if (wireType === 1) this.position += 8
    else if (wireType === 2) this.position = this.lengthEnd()
    else if (wireType === 5) this.position += 4
    else throw new RangeError(`malformed protobuf: wire type ${wireType}`)
    if (this.position > this.end) throw new RangeError('malformed protobuf: truncated')
  }
}

export function varintBytes(value: number): number {
  let bytes = 1
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) bytes += 1
  return bytes
}

/** Writes `value` at `position` and returns the position behind it. */
export function writeVarint(target: Buffer, value: number, position: number): number {
  let at = position
  let rest = value
  while (rest >= 128) {
    target[at++] = (rest % 128) | 0x80
    rest = Math.floor(rest / 128)
  }
  target[at++] = rest
  return at
}
