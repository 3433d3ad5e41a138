/** A repeat that waits for the run under way looks often at first and seldom later, and no longer than it was told to. */
import { expect, test } from 'vitest'
import { depositCommand } from '../../../test/command/bank.ts'
import { seededRandom } from '../../core/service/random.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import type { Database } from '../../postgres/query/database.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createCommandsOn, createPipeline, resolveOptions } from '../commands.ts'

/** Commands all of whose requests are under way elsewhere, for ever, and when each look at that was taken. */
function alwaysBeaten() {
  const clock = createFakeClock()
  const looks: number[] = []
  const nowhere = (): never => {
    throw new Error('There is no database.')
  }
  const db: Database = { query: nowhere, attempt: nowhere }
  const settings = resolveOptions({ db, outbox: createOutbox(), clock, random: seededRandom('looks') })
  const pipeline = createPipeline(settings)
  const commands = createCommandsOn(
    {
      ...pipeline,
      cacheScope: async () => 'here',
      cache: {
        ...pipeline.cache,
        claim: async () => ({ state: 'pending', fingerprint: '', token: 'other', aliveAtMs: clock.nowMs() }),
      },
      markers: { ...pipeline.markers, find: async () => void looks.push(clock.monotonicMs()) },
    },
    settings,
  )
  return { commands, clock, looks }
}

test('who waits for ten seconds looks again at once, then ever less often, and is told when its time is over', async () => {
  const { commands, clock, looks } = alwaysBeaten()
  const request = { principal: 'ann', requestId: 'r1', input: { account: 'a', amount: 1 }, waitForWinnerMs: 10_000 }
  const asked = commands.run(depositCommand(), request)
  await clock.advance(20_000)
  expect(await asked).toMatchObject({ status: 'failed', code: 'IN_PROGRESS' })
  const waits = looks.slice(1).map((at, index) => at - (looks[index] as number))
  expect(looks.length).toBeGreaterThan(20)
  expect(looks.length).toBeLessThan(50)
  expect(waits[0]).toBeLessThanOrEqual(40)
  expect(Math.max(...waits)).toBeLessThanOrEqual(500)
  expect(looks.at(-1)).toBe(10_000)
})
