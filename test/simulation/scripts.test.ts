/**
 * Whatever the fake store knows is played on PostgreSQL as well, or it is said here why not.
 */
import fc from 'fast-check'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { wordStatements, type Step } from './sides.ts'
import { allScripted } from './store-suite.ts'

const ofTheService = 'a statement of the simulated service, not one of ours'
const noLetters = 'there are no dead letters in a simulation'

const unplayed = {
  insertEffect: ofTheService,
  selectBalance: ofTheService,
  setBalance: ofTheService,
  insertLedger: ofTheService,
  countDead: noLetters,
  readRedriving: noLetters,
  clampLetterRetries: noLetters,
  readConsumer: 'a simulated consumer is registered, and never paused',
  readPauses: 'nothing is paused in a simulation',
  readBacklog: 'nothing depends on what is reported',
  markConflicts: 'no id of a simulation has two contents',
  selectMemory: 'no inbox of a simulation has forgotten an event, so no fork is doubted',
  insertAudit: 'nobody in a simulation reads the audit log',
}

test('every statement that is defined occurs in a script, or has a reason not to', () => {
  const played = playedNames()
  expect([...definedNames()].filter((name) => !played.has(name)).toSorted()).toEqual(Object.keys(unplayed).toSorted())
})

/** The names in every call of `define`, whichever simulation makes it. A call whose name cannot be read stands for itself. */
function definedNames(): ReadonlySet<string> {
  const folder = import.meta.dirname
  const sources = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .map((file) => readFileSync(join(folder, file), 'utf8'))
  const calls = sources.flatMap((source) => [...source.matchAll(/\bstore\.define\(\s*(?:'(\w+)')?/g)])
  return new Set(calls.map(([call, name]) => name ?? call))
}

function playedNames(): ReadonlySet<string> {
  return new Set(
    allScripted.flatMap(({ scripts, examples = [], create }) => {
      const { store } = create()
      const steps = [...fc.sample(scripts, { numRuns: 200, seed: 1 }), ...examples].flat()
      return steps.flatMap(({ step }) => textsOf(step).map((text) => store.nameOf(text)))
    }),
  )
}

function textsOf(step: Step): readonly string[] {
  if (typeof step === 'function') return [step([]).text]
  return step in wordStatements ? [wordStatements[step as keyof typeof wordStatements].text] : []
}
