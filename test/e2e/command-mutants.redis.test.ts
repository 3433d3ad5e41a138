/**
 * The property of command-property.redis.test.ts is only worth something if it finds pipelines that break one rule.
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { nothingIsWrong, parameters } from '../command/chaos-property.ts'
import { openSite } from '../command/chaos-site.ts'
import { commandSetup } from '../command/command-setup.ts'
import { mutants } from '../command/pipeline-variants.ts'

const { database, db } = await commandSetup()

/** What gives each variant away. */
const evidence: Readonly<Record<keyof typeof mutants, RegExp>> = {
  'no marker': /took effect twice/,
  'the marker comes after the work': /a repeat of a committed command executed/,
  'the marker is written in another transaction': /was answered ok and has no effect/,
  'the cache is completed before COMMIT': /was answered ok and has no effect/,
  'the plan is made inside the loop': /one call planned more than once/,
  'the fingerprint is ignored': /answered ok for another payload/,
}

test.each(Object.keys(mutants))(
  'the property notices a mistake: %s',
  async (mutant) => {
    const site = await openSite({ databaseUrl: database.directUrl, mutant })
    try {
      const details = await fc.check(nothingIsWrong({ site, db }), { ...parameters(12), endOnFailure: true })
      expect(String(details.errorInstance)).toMatch(evidence[mutant] as RegExp)
    } finally {
      await site.close()
    }
  },
  600_000,
)
