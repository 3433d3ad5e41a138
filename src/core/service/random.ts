/**
 * Randomness as a port. Jitter and ids take a `Random`, so that a run can be repeated from its seed.
 */
import { randomFillSync } from 'node:crypto'

export interface Random {
  /** At least 0, below 1. */
  next(): number
  /** Fills `bytes` and returns it. */
  fill(bytes: Uint8Array): Uint8Array
}

/** Asking the system for a few bytes costs as much as for thousands; so thousands are asked for, and handed out once each. */
const pool = new Uint8Array(4096)
let used = pool.length

/** The machine's own source: unpredictable, for ids and lease tokens. */
export const systemRandom: Random = {
  next: () => Math.random(),
  fill: (bytes) => {
    if (bytes.length > pool.length / 4) return randomFillSync(bytes)
    if (used + bytes.length > pool.length) {
      randomFillSync(pool)
      used = 0
    }
    bytes.set(pool.subarray(used, used + bytes.length))
    pool.fill(0, used, used + bytes.length)
    used += bytes.length
    return bytes
  },
}

/** The same seed gives the same sequence, on every machine (sfc32 over a hashed seed). */
export function seededRandom(seed: number | string): Random {
  let [a, b, c, d] = seedWords(String(seed))
  const word = (): number => {
    const sum = (a + b + d) | 0
    d = (d + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = (((c << 21) | (c >>> 11)) + sum) | 0
    return sum >>> 0
  }
  for (let warmUp = 0; warmUp < 12; warmUp += 1) word()
  return {
    next: () => word() / 4_294_967_296,
    fill: (bytes) => {
      for (let i = 0; i < bytes.length; i += 1) bytes[i] = word() & 0xff
      return bytes
    },
  }
}

/** A whole number from `min` to `max`, both included. */
export function randomInt(random: Random, min: number, max: number): number {
  return min + Math.floor(random.next() * (max - min + 1))
}

/** Four 32-bit words from a text, by FNV-1a with a different start for each. */
function seedWords(seed: string): [number, number, number, number] {
  const hash = (start: number): number => {
    let value = start
    for (let i = 0; i < seed.length; i += 1) value = Math.imul(value ^ seed.charCodeAt(i), 0x01000193)
    return value | 0
  }
  return [hash(0x811c9dc5), hash(0x9e3779b9), hash(0x85ebca6b), 1]
}
