/**
 * What goes wrong in a simulation, and when: a list that fast-check makes, and makes shorter when it has found a violation.
 */
import fc from 'fast-check'

export interface Fault {
  readonly kind: FaultKind
  /** The step of the schedule at which it happens. */
  readonly at: number
  /** Which of the processes it strikes, counted round. */
  readonly who: number
  /** Whether what was on its way at that moment still arrives. */
  readonly arrives: boolean
  readonly ms: number
}

/**
 *   kill      a process ends, and another takes its place
 *   cut       a process loses its connections: to the database, and to the broker
 *   leap      time passes while nobody does anything, as if all had been stopped
 *   setBack   the database's clock is set back
 *   outage    the broker refuses, hangs up after it took a message, has no such topic, or recovers
 *   operate   an operator looks after what gave up
 */
export type FaultKind = 'kill' | 'cut' | 'leap' | 'setBack' | 'outage' | 'operate'

export function faults(
  kinds: readonly FaultKind[],
  within: { readonly steps: number; readonly count: number },
): fc.Arbitrary<Fault[]> {
  return fc.array(
    fc.record({
      kind: fc.constantFrom(...kinds),
      at: fc.nat(within.steps),
      who: fc.nat(5),
      arrives: fc.boolean(),
      ms: fc.integer({ min: 1, max: 1_000 }),
    }),
    { maxLength: within.count, size: 'max' },
  )
}
