/**
 * The promise of the command pipeline as one property over worlds, and how it is asserted: each strike once, then worlds by chance.
 */
import fc from 'fast-check'
import type { Database } from '../../src/postgres/query/database.ts'
import type { Site } from './chaos-site.ts'
import { everyStrike, world, type World } from './chaos-world.ts'
import { happen } from './chaos.ts'

/** A world takes about a second, so a counterexample is made smaller only so often. */
const mostShrinks = 60

/** In no world is anything wrong afterwards. */
export function nothingIsWrong(setting: { readonly site: Site; readonly db: Database }): fc.IAsyncProperty<[World]> {
  let failures = 0
  let shrinks = 0
  return fc.asyncProperty(world, async (each) => {
    if (failures > 0 && (shrinks += 1) > mostShrinks) return
    const found = await happen(setting, each)
    if (found.length === 0) return
    failures += 1
    throw new Error(found.join('\n'))
  })
}

/** Each fault at each step, and so many worlds more. */
export function parameters(more: number): fc.Parameters<[World]> {
  const examples = [...everyStrike.values()].map((each): [World] => [each])
  return { examples, numRuns: examples.length + more }
}
