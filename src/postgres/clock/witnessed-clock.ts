/**
 * The database's clock as clean-ups have witnessed it: what tells them how old a row must look to be old.
 *
 *   looks    │  │  │  │            │  │  │  │
 *   clock ───┴──┴──┴──┴═══ leap ═══┴──┴──┴──┴──▶
 *
 * Whoever removes rows by age looks at the clock with every pass. What it gained since anybody's last look counts as time only as
 * far as the process that looks has seen it pass by its own monotonic clock, and some seconds. The rest is a leap: the clock was set,
 * another server with another clock took over, or no clean-up ran. Nobody can tell these apart, so a leap counts for no row from
 * before it: such a row goes when it has been there for its whole time, as witnessed. So no step ahead shortens what a row is kept
 * for; and after a stop that was meant, rows are kept for longer by its length, until those from before it are gone.
 *
 * Looks and leaps are in the database, for all processes and all that clean up: a restart forgets nothing.
 */
import type { Clock } from '../../core/service/clock.ts'
import type { SignalBus } from '../../core/signals.ts'
import { one, type Queryable } from '../query/database.ts'
import { witness, type ClockRow } from './witnessed-clock.sql.ts'

/** How old a row must look by the database's clock now, to be as old as this. */
export type AgeByClock = (ageMs: number) => number

export interface WitnessDeps {
  readonly db: Queryable
  readonly schema: string
  readonly clock: Clock
  readonly signals: SignalBus
}

/** Processes that follow each other leave gaps of some seconds: those are believed. Margins of retention are longer. */
const slackMs = 30_000

/** Makes the function that looks at the clock: once in every pass, before anything is removed. */
export function createWitness({ db, schema, clock, signals }: WitnessDeps): () => Promise<AgeByClock> {
  let last: { readonly nowMs: number; readonly monotonicMs: number } | undefined
  return async () => {
    const monotonicMs = clock.monotonicMs()
    const vouchedMs = last === undefined ? 0 : last.nowMs + monotonicMs - last.monotonicMs
    const row = await one(db, witness(schema, { vouchedMs, slackMs }))
    const { nowMs, leaps } = read(row)
    last = { nowMs, monotonicMs }
    const [newest] = leaps
    // Otherwise it was found, and told, by whoever looked before.
    if (newest?.to === nowMs && newest.to - newest.from > slackMs)
      signals.emit('retention.clock-leapt', { schema, byMs: newest.to - newest.from })
    return ageByClock(row)
  }
}

/** Rows from before a leap are younger than they look. */
export function ageByClock(row: ClockRow | undefined): AgeByClock {
  if (row === undefined) return (ageMs) => ageMs
  const { nowMs, leaps } = read(row)
  return (ageMs) => {
    let age = ageMs
    for (const { from, to } of leaps) {
      if (nowMs - to >= age) break
      age += to - from
    }
    return Math.ceil(age)
  }
}

interface Leap {
  readonly from: number
  readonly to: number
}

function read(row: ClockRow): { readonly nowMs: number; readonly leaps: readonly Leap[] } {
  return { nowMs: Number(row.now_ms), leaps: JSON.parse(row.leaps) as Leap[] }
}
