/**
 * The command pipeline as one property over real Postgres, real Redis and real processes: clients that repeat and reuse request
 * ids, servers killed at every step, Redis killed, frozen, flushed and failed over at every step, COMMITs and their answers lost.
 */
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { nothingIsWrong, parameters } from '../command/chaos-property.ts'
import { openSite, type Site } from '../command/chaos-site.ts'
import { happen } from '../command/chaos.ts'
import { everyStrike, type World } from '../command/chaos-world.ts'
import { commandSetup } from '../command/command-setup.ts'

const { database, db } = await commandSetup()
const worlds = process.env['WAYBILL_PROOF'] === 'full' ? 200 : 6
let site: Site

beforeAll(async () => void (site = await openSite({ databaseUrl: database.directUrl })))
afterAll(() => site.close())

test('per principal and request id: one effect at most, one if anybody was told success, one response, and never a false failure', async () => {
  await fc.assert(nothingIsWrong({ site, db }), parameters(worlds))
  const missed = (): [string, World][] => [...everyStrike].filter(([strike]) => !site.struck.has(strike))
  // A Redis that answers too late is passed over, and with it the steps that need its answer: such a world is played again.
  for (let turn = 0; turn < 20 && missed().length > 0; turn += 1)
    for (const [, world] of missed()) expect(await happen({ site, db }, world)).toEqual([])
  expect(missed()).toEqual([])
}, 3_600_000)
