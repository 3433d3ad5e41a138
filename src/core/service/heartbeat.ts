/**
 * Whether a loop goes round: each pass, however it ended, is a beat. A loop whose pass hangs has none, and shows its age.
 */
import type { Clock } from './clock.ts'
import type { Pass } from './loop.ts'

export interface Pulse {
  /** How long ago the last pass ended, or the first began; `undefined` while nothing runs. */
  readonly ageMs: () => number | undefined
  /** A sign of life within a pass that takes long. */
  beat(): void
  /** The pass, with a beat at its end. */
  around(pass: Pass): Pass
  /** Runs `work`, and is still before and after it. */
  during<Result>(work: () => Promise<Result>): Promise<Result>
}

export function createPulse(clock: Clock): Pulse {
  let beatAt: number | undefined
  const beat = (): void => {
    beatAt = clock.monotonicMs()
  }
  return {
    ageMs: () => (beatAt === undefined ? undefined : clock.monotonicMs() - beatAt),
    beat,
    around: (pass) => async (aborting) => {
      try {
        return await pass(aborting)
      } finally {
        beat()
      }
    },
    during: async (work) => {
      beat()
      try {
        return await work()
      } finally {
        beatAt = undefined
      }
    },
  }
}
