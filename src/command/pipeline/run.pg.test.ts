/**
 * The promises of the pipeline as scenarios, each run on the real one and on every known-bad variant. A variant that passes all
 * of them would mean that the scenarios prove nothing.
 */
import { expect, test } from 'vitest'
import { depositCommand, type DepositOptions } from '../../../test/command/bank.ts'
import { commandSetup } from '../../../test/command/command-setup.ts'
import { newHistory, violations, type Call, type History } from '../../../test/command/history.ts'
import { mutants, setForget, type Variant } from '../../../test/command/pipeline-variants.ts'
import type { CommandCache } from '../cache/cache.ts'
import { createCommandsOn, createPipeline, resolveOptions, type Commands } from '../commands.ts'
import { memoryCache } from '../cache/memory.ts'
import { versionConflict } from '../model/rejection.ts'

const { db, bank, newAccount, newRequest } = await commandSetup()

interface Stage {
  readonly history: History
  readonly account: string
  /** Asks once, and keeps what became of it. */
  readonly ask: (requestId: string, options?: { readonly amount?: number; readonly via?: Commands }) => Promise<Call>
  readonly withoutCache: Commands
}

interface Scenario {
  readonly name: string
  readonly deposit?: DepositOptions
  readonly play: (stage: Stage) => Promise<string[] | void>
}

const scenarios: readonly Scenario[] = [
  {
    name: 'a request is repeated, the cache is gone, and the version has moved on',
    play: async ({ ask, withoutCache }) => {
      const requestId = newRequest()
      await ask(requestId)
      await ask(newRequest())
      const again = await ask(requestId, { via: withoutCache })
      return again.executes === 0 ? [] : ['a repeat of a committed command executed it again']
    },
  },
  {
    name: 'a run is rolled back after its last statement, and the request is repeated',
    deposit: { store: 'response', after: failOnce() },
    play: async ({ ask }) => {
      const requestId = newRequest()
      await ask(requestId)
      await ask(requestId)
    },
  },
  {
    name: 'a run is rolled back by the database at COMMIT, and the request is repeated',
    deposit: { store: 'response' },
    play: async ({ ask }) => {
      await db.query(
        `create or replace function refuse() returns trigger language plpgsql as 'begin raise exception ''refused''; end'`,
      )
      await db.query(
        'create constraint trigger refuse after insert on ledger deferrable initially deferred for each row execute function refuse()',
      )
      const requestId = newRequest()
      await ask(requestId)
      await db.query('drop trigger refuse on ledger')
      await ask(requestId)
    },
  },
  {
    name: 'another payload comes under the same id',
    deposit: { store: 'response' },
    play: async ({ ask, withoutCache }) => {
      const requestId = newRequest()
      await ask(requestId)
      await ask(requestId, { amount: 7 })
      await ask(requestId, { amount: 7, via: withoutCache })
    },
  },
  {
    name: 'attempts lose races, and the loot stays what was planned',
    deposit: {
      before: async (_tx, { attempt }) => {
        if (attempt < 4) throw versionConflict('the account')
      },
    },
    play: async ({ ask }) => void (await ask(newRequest())),
  },
  {
    name: 'a plan would reject the repeat, because the request itself took what there was',
    deposit: { store: 'response', rejectsIn: 'plan' },
    play: async ({ ask, withoutCache }) => {
      await ask(newRequest())
      const requestId = newRequest()
      await ask(requestId, { amount: -5 })
      const again = [await ask(requestId, { amount: -5, via: withoutCache }), await ask(requestId, { amount: -5 })]
      return again.every(({ outcome }) => outcome?.status === 'replayed') ? [] : ['a repeat of a committed command was refused']
    },
  },
  {
    name: 'ten ask for the same at once',
    deposit: { store: 'response' },
    play: async ({ ask, withoutCache }) => {
      const requestId = newRequest()
      await Promise.all(Array.from({ length: 10 }, (_, n) => ask(requestId, n % 2 === 0 ? {} : { via: withoutCache })))
      await ask(requestId)
    },
  },
]

function failOnce(): NonNullable<DepositOptions['after']> {
  const failed = new Set<string | undefined>()
  return async (_tx, { requestId }) => {
    if (failed.has(requestId)) return
    failed.add(requestId)
    throw new Error('the process ran out of something')
  }
}

async function playOn(variant: Variant, { deposit: options = {}, play }: Scenario): Promise<string[]> {
  const cache: CommandCache = memoryCache()
  setForget(async (key) => {
    const found = await cache.claim(key, '', { ttlMs: 1 })
    await cache.release(key, found ?? '')
  })
  const settings = resolveOptions({ db, outbox: bank.outbox, cache, waitForWinnerMs: 2_000 })
  const build = (given: typeof settings): Commands => createCommandsOn(variant(createPipeline(given)), given)
  const [withCache, withoutCache] = [build(settings), build({ ...settings, cache: undefined })]
  const deposit = depositCommand(options)
  const history = newHistory()
  const account = newAccount()
  const ask: Stage['ask'] = (requestId, { amount = 5, via = withCache } = {}) =>
    history.record({ requestId, amount }, () => via.run(deposit, { principal: 'ann', requestId, input: { account, amount } }))
  const more = (await play({ history, account, ask, withoutCache })) ?? []
  return [...more, ...violations(history, await bank.ledger())]
}

test.each(scenarios)('the promises hold when $name', async (scenario) => {
  expect(await playOn((pipeline) => pipeline, scenario)).toEqual([])
})

/** What gives each variant away, at least. */
const evidence: Readonly<Record<keyof typeof mutants, RegExp>> = {
  'no marker': /took effect twice/,
  'the marker comes after the work': /a repeat of a committed command executed it again/,
  'the marker is written in another transaction': /was answered ok and has no effect/,
  'the cache is completed before COMMIT': /was answered ok and has no effect/,
  'the plan is made inside the loop': /the effect is not what was planned/,
  'the fingerprint is ignored': /answered ok for another payload/,
}

test.each(Object.entries(mutants))('it is noticed when there is a mistake: %s', async (name, mutant) => {
  const found: string[] = []
  for (const scenario of scenarios) found.push(...(await playOn(mutant, scenario)))
  expect(found.join('\n')).toMatch(evidence[name] as RegExp)
})
