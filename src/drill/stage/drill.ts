/**
 * What a drill is: a hazard, a fault that is done on purpose, and the proof that nothing came of it.
 *
 * A drill passes only if its fault was seen to happen (`fired`), the system came to rest in time, its processes stopped in order,
 * and the history checker found nothing wrong with what was recorded. One that cannot run here says why and what to do about it;
 * it is never left out silently.
 */
import type { Stage } from './stage.ts'
import type { Target } from '../target/target.ts'

export interface Drill {
  readonly name: string
  /** What goes wrong in the world, and what it would do to a system without these guarantees. */
  readonly hazard: string
  /** What the drill does. */
  readonly fault: string
  /** `servers` if it stops, restarts or stands in front of a server: it then runs on embedded parts only. */
  readonly needs: 'processes' | 'servers'
  /** What this machine lacks for it, and how to get it. */
  readonly missing?: () => string | undefined
  /** Chooses another place than the one it was given. */
  readonly on?: (target: Target) => Promise<Target>
  /** Does the fault, says so by `stage.fired`, and leaves a system that can recover. */
  run(stage: Stage): Promise<void>
}

export interface TimelineEntry {
  readonly atMs: number
  readonly kind: 'step' | 'fault' | 'recovery'
  readonly what: string
}

export interface DrillCounts {
  readonly committed: number
  readonly published: number
  /** Messages at the broker beyond the first of their event. */
  readonly duplicates: number
  readonly applied: number
}

export interface DrillRecord {
  readonly name: string
  readonly hazard: string
  readonly fault: string
  readonly verdict: 'pass' | 'fail' | 'skipped'
  /** Whether the fault was observed, not merely ordered. */
  readonly fired: boolean
  /** What was observed; of a drill that was skipped, what is missing. */
  readonly evidence: string
  readonly timeline: readonly TimelineEntry[]
  readonly counts: DrillCounts
  /** The promises that were put to the test. */
  readonly judged: readonly string[]
  readonly violations: readonly string[]
  readonly seconds: number
}

export interface DrillReport {
  readonly drills: readonly DrillRecord[]
  readonly verdict: 'pass' | 'fail'
  readonly passed: number
  readonly failed: number
  readonly skipped: number
  readonly seed: number
  readonly on: 'embedded' | 'config'
  readonly seconds: number
  /** What could not be closed or removed at the end; the run fails with it. */
  readonly leftBehind?: string | undefined
}
