import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { playCell, type CellResult } from './cell.ts'
import { cellsLike } from './matrix.ts'
import type { Mistake } from './mistakes.ts'
import { cellName } from './scene.ts'
import { openSite, type Site } from './site.ts'

const timeout = 900_000
let site: Site
beforeAll(async () => {
  site = await openSite()
}, timeout)
afterAll(() => site.close(), timeout)

describe('nothing is lost, doubled or out of order when it strikes at', () => {
  test.each([
    'relay: published × SIGKILL',
    'stored consumer: messages removed × backend terminated',
    'consumer: last attempt charged × SIGSTOP',
  ])('%s', { timeout }, async (name) => {
    const [cell] = cellsLike(name)
    if (cell === undefined) throw new Error(`There is no cell ${name}.`)
    expect(await playCell(site, cell)).toMatchObject({ cell: name, fired: true, violations: [] })
  })
})

/** Plays the cell of this name with a mistake in it. */
async function playMistake(name: string, mistake: Mistake, patienceMs?: number): Promise<CellResult> {
  const cell = cellsLike(name).find((each) => cellName(each) === name)
  if (cell === undefined) throw new Error(`There is no cell ${name}.`)
  const result = await playCell(site, cell, { mistake, ...(patienceMs === undefined ? {} : { patienceMs }) })
  expect(result.fired).toBe(true)
  return result
}

test('a consumer that acknowledges before it commits is found out', { timeout }, async () => {
  const name = 'consumer: inbox claimed × SIGKILL'
  const { violations, explanation } = await playMistake(name, 'acknowledges first', 1_000)
  expect(violations).toContainEqual(expect.stringMatching(/^one-effect: account \w v\d was never applied by ledger$/))
  // It is lost, not late: nobody has it any more.
  expect(violations).not.toContainEqual(expect.stringMatching(/outbox rows|messages at the broker/))
  expect(explanation).toMatch(/commit {2}account \w v\d/)
})

test('a consumer that acknowledges before it commits a dead letter is found out', { timeout }, async () => {
  const { violations } = await playMistake('consumer: aggregate held × SIGKILL', 'acknowledges its last attempt first', 1_000)
  // Neither applied nor given up, and nobody has it any more.
  expect(violations).toContainEqual('one-effect: account a v1 was never applied by ledger')
  expect(violations).not.toContainEqual(expect.stringMatching(/outbox rows|messages at the broker|dead letters/))
})

test('a relay that takes refused messages for published is found out', { timeout }, async () => {
  const { violations } = await playMistake('relay: confirmed × broker refusal', 'believes in refused messages')
  expect(violations).toContainEqual(expect.stringMatching(/^no-loss: account \w v\d was committed and never published$/))
})

test.each([
  {
    what: 'events before their deposit',
    mistake: 'adds events before',
    expected: /is 4 deposits of 40 at ledger, and 3 deposits/,
  },
  {
    what: 'events after their deposit',
    mistake: 'adds events afterwards',
    expected: /is 3 deposits of 30 at ledger, and 4 deposits/,
  },
] as const)('a writer that commits $what is found out', { timeout }, async ({ mistake, expected }) => {
  const { violations } = await playMistake('writer: committed × SIGKILL', mistake)
  expect(violations).toContainEqual(expect.stringMatching(expected))
})
