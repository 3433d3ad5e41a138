/**
 * What one answer to a fetch may become in memory: a megabyte that is compressed can stand for a thousand, and a record takes seven bytes.
 *
 * All partitions of an answer share it. Where it is used up, reading stops in front of a batch, which comes again with the next fetch;
 * a batch that is too much by itself cannot be read. Sizes are bounded before or while inflating: gzip and zstd stop at the bound,
 * snappy tells its size in front, and of LZ4 no block gives more than its frame allows, nor more than 255 bytes for one.
 */
import { gunzipSync, zstdDecompressSync } from 'node:zlib'
import { WaybillError } from '../../../../core/errors.ts'
import { damaged } from './byte-reader.ts'

/** The part of `@platformatic/kafka` that inflates what Node does not. */
type Codecs = Readonly<Record<'snappy' | 'lz4', { decompressSync(bytes: Buffer): Uint8Array }>>

/** There was room for batches before, and there is none for this one. */
export class AnswerFull extends Error {}

/** A record or a header for so many of the bytes that are allowed. */
const bytesPerValue = 64
/** The codes that a batch names its compression by. */
const [gzip, snappy, lz4, zstd] = [1, 2, 3, 4]

export class AnswerBudget {
  readonly #maxBytes: number
  #bytesLeft: number
  #valuesLeft: number
  #batches = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
    this.#bytesLeft = maxBytes
    this.#valuesLeft = Math.ceil(maxBytes / bytesPerValue)
  }

  beginBatch(): void {
    this.#batches += 1
  }

  /** Counts records and headers. */
  take(values: number): void {
    this.#valuesLeft -= values
    if (this.#valuesLeft < 0) throw this.#over(`has more than ${Math.ceil(this.#maxBytes / bytesPerValue)} records and headers`)
  }

  inflate(code: number, bytes: Buffer, codecs: Codecs): Buffer {
    const inflated = this.#inflate(code, bytes, codecs)
    this.#bytesLeft -= inflated.length
    return inflated
  }

  #inflate(code: number, bytes: Buffer, codecs: Codecs): Buffer {
    if (code === gzip || code === zstd) {
      try {
        const inflate = code === gzip ? gunzipSync : zstdDecompressSync
        return inflate(bytes, { maxOutputLength: Math.max(1, this.#bytesLeft) })
      } catch (cause) {
        throw (cause as { readonly code?: unknown }).code === 'ERR_BUFFER_TOO_LARGE' ? this.#tooLarge() : cause
      }
    }
    if (code !== snappy && code !== lz4) throw new WaybillError('CORRUPT', `no compression has the code ${code}.`)
    const size = code === snappy ? snappySize(bytes) : lz4Size(bytes)
    if (size > this.#bytesLeft) throw this.#tooLarge()
    return Buffer.from(codecs[code === snappy ? 'snappy' : 'lz4'].decompressSync(bytes))
  }

  #tooLarge(): Error {
    return this.#over(`inflates to more than ${this.#maxBytes} bytes`)
  }

  #over(why: string): Error {
    if (this.#batches > 1) return new AnswerFull(why)
    return new WaybillError('TOO_LARGE', `a batch ${why}. Raise kafka.maxInflatedBytes if its producer is to be trusted.`)
  }
}

const javaMark = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00])

/** What the blocks say in front; Java's library writes several, each behind its length. */
function snappySize(bytes: Buffer): number {
  if (!bytes.subarray(0, javaMark.length).equals(javaMark)) return snappyBlockSize(bytes)
  let size = 0
  for (let at = 16; at + 4 <= bytes.length;) {
    const end = at + 4 + bytes.readUInt32BE(at)
    size += snappyBlockSize(bytes.subarray(at + 4, end))
    at = end
  }
  return size
}

function snappyBlockSize(block: Buffer): number {
  let [size, scale] = [0, 1]
  for (const byte of block.subarray(0, 5)) {
    size += (byte & 127) * scale
    if (byte < 128) return size
    scale *= 128
  }
  throw damaged('a snappy block does not say how large it is')
}

const lz4Mark = 0x184d2204
const lz4Ratio = 255

/** At most so many bytes; no block is read for it. */
function lz4Size(bytes: Buffer): number {
  if (bytes.length < 7 || bytes.readUInt32LE(0) !== lz4Mark) throw damaged('an LZ4 frame does not begin as one')
  const [flags, descriptor] = [bytes.readUInt8(4), bytes.readUInt8(5)]
  // 4 to 7: 64 KiB, 256 KiB, 1 MiB and 4 MiB.
  const blockBytes = 2 ** (8 + 2 * ((descriptor >> 4) & 7))
  const checksumBytes = (flags & 16) === 0 ? 0 : 4
  let size = 0
  let at = 7 + ((flags & 8) === 0 ? 0 : 8) + ((flags & 1) === 0 ? 0 : 4)
  while (at + 4 <= bytes.length) {
    const head = bytes.readUInt32LE(at)
    if (head === 0) break
    const stored = head & 0x7fff_ffff
    size += head === stored ? Math.min(blockBytes, stored * lz4Ratio) : stored
    at += 4 + stored + checksumBytes
  }
  return size
}
