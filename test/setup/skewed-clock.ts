/**
 * A database whose clock a test may set: what statements ask of `clock_timestamp()` is shifted on its way, and so is what the clean-up
 * of markers asks inside the database.
 */
import { markTx, type Database, type Queryable } from '../../src/postgres/query/database.ts'

export interface SkewedClock {
  readonly db: Database
  /** Sets the clock ahead by so much, or back. */
  step(ms: number): void
}

export function skewedClock(real: Database): SkewedClock {
  let skewMs = 0
  const shifted = ({ query }: Queryable): Queryable['query'] => {
    const at = (): string => `(clock_timestamp() + ${skewMs} * interval '1 millisecond')`
    return async (text, values) => {
      const routine = /\S+expire_markers"(?=\()/.exec(text)?.[0]
      if (routine !== undefined) {
        const { rows } = await query(`select pg_get_functiondef('${routine}'::regproc) as definition`, [])
        const { definition } = rows[0] as { definition: string }
        const clock = /\(?clock_timestamp\(\)(?: \+ -?\d+ \* interval '1 millisecond'\))?/g
        await query(definition.replaceAll(clock, at()), [])
      }
      return await query(text.replaceAll('clock_timestamp()', at()), values)
    }
  }
  return {
    step: (ms) => {
      skewMs += ms
    },
    db: {
      ...real,
      query: shifted(real),
      attempt: (options, work) => real.attempt(options, (tx) => work(markTx({ native: tx.native, query: shifted(tx) }))),
    },
  }
}
