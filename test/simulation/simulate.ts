/**
 * Runs simulations over many schedules and worlds, and tells of the first that broke a promise: as little of it as is needed,
 * and the seed and path that play it again, step by step.
 */
import fc, { type Scheduler } from 'fast-check'

export interface Outcome {
  readonly violations: readonly string[]
  /** The same for the same history. */
  readonly hash: string
  readonly steps: number
  /** The last steps. */
  readonly trace: readonly string[]
}

export type Play<World> = (scheduler: Scheduler, world: World) => Promise<Outcome>

export interface Search {
  readonly runs: number
  readonly seed?: number | undefined
  readonly path?: string | undefined
  /** Whether a history that failed is made smaller. @default true */
  readonly shrinking?: boolean
}

export interface Found<World> {
  readonly seed: number
  readonly path: string
  readonly runs: number
  readonly world: World
  readonly outcome: Outcome
}

export interface Searched<World> {
  readonly found: Found<World> | undefined
  readonly runs: number
  readonly steps: number
}

const mostShrinks = 300

/** Schedules are named by a number and not made smaller: a smaller world under the same number is worth trying, another order is not. */
const schedules = fc.noShrink(fc.nat())

/** fast-check's scheduler of that number: a fresh one every time, because one that was used cannot be rewound. */
function schedulerOf(schedule: number): Scheduler {
  return fc.sample(fc.scheduler(), { seed: schedule, numRuns: 1 })[0] as Scheduler
}

/** The first history that breaks a promise, made as small as it gets. */
export async function search<World>(worlds: fc.Arbitrary<World>, play: Play<World>, how: Search): Promise<Searched<World>> {
  const { runs, seed, path, shrinking = true } = how
  let steps = 0
  let triedAgain = 0
  let last: { readonly world: World; readonly outcome: Outcome } | undefined
  const property = fc.asyncProperty(schedules, worlds, async (schedule, world) => {
    // Once something was found, only so much is tried to make it smaller.
    if (last !== undefined && (triedAgain += 1) > mostShrinks) return
    const outcome = await play(schedulerOf(schedule), world)
    steps += outcome.steps
    if (outcome.violations.length === 0) return
    last = { world, outcome }
    throw new Error(outcome.violations.join(', '))
  })
  const details = await fc.check(property, {
    numRuns: runs,
    endOnFailure: !shrinking,
    ...(seed === undefined ? {} : { seed }),
    ...(path === undefined ? {} : { path }),
  })
  if (!details.failed) return { found: undefined, runs: details.numRuns, steps }
  if (last === undefined) throw new Error('The simulation itself failed.', { cause: details.errorInstance })
  const found = { seed: details.seed, path: details.counterexamplePath ?? '', runs: details.numRuns, ...last }
  return { found, runs: details.numRuns, steps }
}

/** What is printed of a history that broke a promise. */
export function describeFound<World>(name: string, { seed, path, world, outcome }: Found<World>): string {
  return [
    `${name}: ${outcome.violations.join(', ')}`,
    `replay: WAYBILL_SEED=${seed} WAYBILL_PATH=${path} (history ${outcome.hash}, ${outcome.steps} steps)`,
    `world: ${JSON.stringify(world)}`,
    'the last steps:',
    ...outcome.trace.slice(-60).map((line) => `  ${line}`),
  ].join('\n')
}
