import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { verify } from './spin.ts'

const model = fileURLToPath(new URL('relay.pml', import.meta.url))
const timeout = 600_000

/** What gives a mutant away: an order that is broken, a write that nobody may make, or something that is left in the end. */
const order = /first\[l\]/
const fence = /owner==self/
const left = /state\[0\]==/

const mutants: readonly (readonly [name: string, givenAwayBy: RegExp])[] = [
  ['UNFENCED', fence],
  ['CONTINUE_AFTER_FAILURE', order],
  ['BLOCKED_AT_SETTLE_ONLY', order],
  ['PARKED_DOES_NOT_BLOCK', order],
  ['TWO_SNAPSHOTS', order],
  ['DROP_EARLY', order],
  ['NO_PROMOTION', left],
  ['FAST_DELETE_OF_ANY_STATE', left],
  ['LOCK_AND_LOOK_AT_ONCE', left],
  ['RANGE_DELETE', left],
  ['UNKNOWN_IS_CONFIRMED', left],
]

test('no interleaving of two relays, an operator and two faults breaks the protocol', { timeout }, async () => {
  const verdict = await verify(model, { optimised: true })
  expect(verdict).toMatchObject({ violation: undefined, complete: true })
  expect(verdict.states).toBeGreaterThan(100_000)
})

describe('the model finds out', () => {
  test.each(mutants)('a protocol with the mutation %s', { timeout }, async (name, givenAwayBy) => {
    expect((await verify(model, { defines: [name] })).violation).toMatch(givenAwayBy)
  })
})
