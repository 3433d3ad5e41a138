/** How long a pending entry of the cache is believed: as long as its run lives, and not for the time that it lasts. */
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { depositCommand, newSteps, type DepositOptions } from '../../../test/command/bank.ts'
import { commandSetup, gate } from '../../../test/command/command-setup.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { command } from '../model/command.ts'
import { memoryCache } from '../cache/memory.ts'

const { db, bank, commandsWith, newAccount, newRequest } = await commandSetup()

/** Half a minute after everything else, and half a minute before a pending entry ends by itself. */
const later: Clock = { ...systemClock, nowMs: () => Date.now() + 30_000 }
const request = () => ({ principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } })

/** Deposits whose steps are counted. */
function counted(options: DepositOptions = {}) {
  const steps = newSteps()
  return { steps, deposit: depositCommand({ store: 'response', ...options, steps }) }
}

describe('a repeat that finds a pending entry', () => {
  test('of a process that died before COMMIT executes the request, and the next one is answered by the cache', async () => {
    const cache = memoryCache()
    const { deposit } = counted()
    const asked = request()
    const begun = gate()
    const dying = commandsWith({ cache, db: { ...db, attempt: () => (begun.open(), new Promise<never>(() => {})) } })
    void dying.run(deposit, asked)
    await begun.opened
    const repeating = commandsWith({ cache, clock: later })
    expect(await repeating.run(deposit, asked)).toMatchObject({ status: 'executed' })
    expect(await repeating.run(deposit, asked)).toMatchObject({ status: 'replayed', from: 'cache' })
    expect(await bank.effects(asked.requestId)).toBe(1)
  })

  test('of a run that was rolled back and could not release it executes the request', async () => {
    const cache = memoryCache()
    let isFirst = true
    const failOnce = async () => {
      if (isFirst) throw new Error('out of memory')
    }
    const { deposit } = counted({ after: failOnce })
    const asked = request()
    const lost = commandsWith({ cache: { ...cache, release: async () => undefined } })
    await expect(lost.run(deposit, asked)).rejects.toThrow('out of memory')
    isFirst = false
    expect(await commandsWith({ cache, clock: later }).run(deposit, asked)).toMatchObject({ status: 'executed' })
  })

  test('of a run that holds the marker is told that it is under way, plans nothing, and leaves the entry to its owner', async () => {
    const cache = memoryCache()
    const [holds, mayEnd] = [gate(), gate()]
    const { deposit, steps } = counted({ store: 'marker', before: async () => (holds.open(), await mayEnd.opened) })
    const asked = request()
    const owner = commandsWith({ cache }).run(deposit, asked)
    await holds.opened
    const repeating = commandsWith({ cache, clock: later })
    const meanwhile = await repeating.run(deposit, asked)
    mayEnd.open()
    const { response } = (await owner) as { readonly response: unknown }
    expect(meanwhile).toMatchObject({ code: 'IN_PROGRESS' })
    expect(steps.plans.get(asked.requestId)).toBe(1)
    expect(await repeating.run(deposit, asked)).toMatchObject({ status: 'replayed', response, from: 'cache' })
  })

  test('of a run that is still planning is told that it is under way, and plans nothing, however long that takes', async () => {
    const clock = createFakeClock()
    const [planning, mayEnd] = [gate(), gate()]
    let plans = 0
    const appraise = command('Appraise', {
      input: z.object({}),
      plan: async () => ((plans += 1), planning.open(), plans === 1 && (await mayEnd.opened)),
      execute: async () => 'done',
    })
    const commands = commandsWith({ cache: memoryCache({ clock }), clock })
    const asked = { principal: 'ann', requestId: newRequest(), input: {} }
    const owner = commands.run(appraise, asked)
    await planning.opened
    for (let minutes = 0; minutes < 3; minutes += 1) {
      await clock.advance(60_000)
      expect(await commands.run(appraise, asked)).toMatchObject({ code: 'IN_PROGRESS' })
    }
    mayEnd.open()
    expect(await owner).toMatchObject({ status: 'executed' })
    expect(await commands.run(appraise, asked)).toMatchObject({ status: 'replayed', from: 'cache' })
    expect(plans).toBe(1)
  })
})
