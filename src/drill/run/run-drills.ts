/**
 * Runs drills one after the other on one target, which it opens and closes, and sums them up.
 */
import { errorMessage } from '../../core/errors.ts'
import type { Drill, DrillRecord, DrillReport } from '../stage/drill.ts'
import { openEmbedded } from '../target/embedded.ts'
import { runDrill } from './run-drill.ts'
import type { Target } from '../target/target.ts'

export interface RunDrillsOptions {
  /** @default embedded parts, made for this run */
  readonly open?: (() => Promise<Target>) | undefined
  /** What amounts and faults are drawn from. @default 1 */
  readonly seed?: number
  /** How long each may take to recover. @default 60_000 */
  readonly recoverMs?: number
  /** How long each waits for anything at all. @default 45_000 */
  readonly patienceMs?: number | undefined
  /** Another program for consumers, to see drills fail. */
  readonly script?: URL | undefined
  /** Ends the run after the drill under way. */
  readonly signal?: AbortSignal | undefined
  readonly onEnd?: (record: DrillRecord) => void
}

export async function runDrills(chosen: readonly Drill[], options: RunDrillsOptions = {}): Promise<DrillReport> {
  const { seed = 1, open = () => openEmbedded({ seed }), recoverMs = 60_000, patienceMs, script, signal, onEnd } = options
  const startedMs = performance.now()
  const target = await open()
  const records: DrillRecord[] = []
  let leftBehind: string | undefined
  try {
    for (const drill of chosen) {
      if (signal?.aborted === true) break
      const record = await runDrill(drill, { target, seed, recoverMs, patienceMs, script })
      records.push(record)
      onEnd?.(record)
    }
  } finally {
    await target.close().catch((error: unknown) => (leftBehind = errorMessage(error)))
  }
  const count = (verdict: DrillRecord['verdict']): number => records.filter((each) => each.verdict === verdict).length
  const [passed, failed, skipped] = [count('pass'), count('fail'), count('skipped')]
  const isComplete = records.length === chosen.length && failed === 0 && passed > 0 && leftBehind === undefined
  return {
    drills: records,
    verdict: isComplete ? 'pass' : 'fail',
    passed,
    failed,
    skipped,
    seed,
    on: target.on,
    seconds: Math.round((performance.now() - startedMs) / 100) / 10,
    leftBehind,
  }
}
