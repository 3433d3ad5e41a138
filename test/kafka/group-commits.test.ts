import { expect, test } from 'vitest'
import { groupMutants } from './group-mutants.ts'
import { groupScenario } from './group-scenario.ts'

test('a group commits what is processed without a gap, never goes back, and never commits what it has lost', async () => {
  expect(await groupScenario()).toEqual([])
})

test.each(groupMutants)('the same scenario notices $name', async (mutant) => {
  expect(await groupScenario(mutant)).toEqual(expect.arrayContaining([expect.stringMatching(mutant.found)]))
})
