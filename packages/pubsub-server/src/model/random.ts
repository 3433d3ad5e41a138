/** Randomness from a seed, so that a run with faults can be repeated. */
export interface Random {
  /** At least 0, below 1. */
  next(): number
}

/** The same seed gives the same sequence, on every machine (mulberry32 over a hashed seed). */
export function seededRandom(seed: number | string): Random {
  let state = 0x811c9dc5
  for (const byte of Buffer.from(String(seed))) state = Math.imul(state ^ byte, 0x01000193)
  return {
    next: () => {
      state = (state + 0x6d2b79f5) | 0
      let mixed = Math.imul(state ^ (state >>> 15), state | 1)
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
    },
  }
}
