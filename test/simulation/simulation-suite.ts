/**
 * What every simulation has to show: no history breaks a promise, every known-bad mutant is found, and what was found can be
 * played again from its seed, step by step.
 *
 * WAYBILL_SEED searches elsewhere; with WAYBILL_PATH as well, one history is played again, as a failure prints it.
 */
import type { Arbitrary, Scheduler } from 'fast-check'
import { describe, expect, test } from 'vitest'
import { describeFound, search, type Outcome } from './simulate.ts'

export interface NamedMutant<Mutant, World> {
  readonly name: string
  /** Where it is looked for: in the worlds in which its rule matters, if those are few. @default anywhere */
  readonly within?: (world: World) => World
  /** A fresh one for each history. */
  readonly make: () => Mutant
  /** What gives it away. */
  readonly found: RegExp
}

export interface Simulated<World, Mutant> {
  readonly name: string
  readonly worlds: Arbitrary<World>
  readonly play: (scheduler: Scheduler, world: World, mutant?: Mutant) => Promise<Outcome>
  readonly mutants: readonly NamedMutant<Mutant, World>[]
  readonly runs: number
  /** Histories in which a mutant must be found, and the seed that they begin with: one that finds all of them soon. */
  readonly mutantRuns: number
  readonly mutantSeed: number
}

const seed = Number(process.env['WAYBILL_SEED'] ?? 20_250_101)
const path = process.env['WAYBILL_PATH']
const timeout = 3_600_000

export function provePromises<World>({
  name,
  worlds,
  play,
  runs,
}: Pick<Simulated<World, never>, 'name' | 'worlds' | 'play' | 'runs'>): void {
  test(`${name}: no schedule and no fault breaks a promise`, { timeout }, async () => {
    const { found, ...searched } = await search(worlds, (scheduler, world) => play(scheduler, world), {
      runs: path === undefined ? runs : 1,
      seed,
      path,
    })
    console.log(JSON.stringify({ simulation: name, seed, ...searched }))
    expect(found === undefined ? '' : describeFound(name, found)).toBe('')
  })
}

export function proveMutants<World, Mutant>({
  name,
  worlds,
  play,
  mutants,
  mutantRuns,
  mutantSeed,
}: Simulated<World, Mutant>): void {
  describe(`${name}: the simulation finds out`, () => {
    test.each(mutants)('a mutant that $name', { timeout }, async ({ make, found: givenAwayBy, within = same }) => {
      const broken = (scheduler: Scheduler, world: World): Promise<Outcome> => play(scheduler, world, make())
      const { found } = await search(worlds.map(within), broken, { runs: mutantRuns, seed: mutantSeed, shrinking: false })
      expect(found?.outcome.violations.join(', ')).toMatch(givenAwayBy)
    })
  })
}

/** `shrinking` also plays again what was made smaller, which takes the longer the larger the worlds are. */
export function proveReplay<World, Mutant>(
  { name, worlds, play, mutants, mutantRuns }: Simulated<World, Mutant>,
  { shrinking }: { readonly shrinking: boolean },
): void {
  test(`${name}: the seed and path of a failure play the same history again`, { timeout }, async () => {
    const [mutant] = mutants as readonly [NamedMutant<Mutant, World>]
    const broken = (scheduler: Scheduler, world: World): Promise<Outcome> => play(scheduler, world, mutant.make())
    const { found } = await search(worlds, broken, { runs: mutantRuns, seed: 7, shrinking })
    const again = await search(worlds, broken, { runs: 1, seed: found?.seed, path: found?.path, shrinking: false })
    expect(again.found?.outcome).toEqual(found?.outcome)
    expect(again.found?.world).toEqual(found?.world)
    expect(found?.outcome.violations).not.toEqual([])
  })
}

function same<World>(world: World): World {
  return world
}
