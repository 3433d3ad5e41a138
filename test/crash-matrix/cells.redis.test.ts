import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { playCell } from './cell.ts'
import { cellsLike } from './matrix.ts'
import { openSite, type Site } from './site.ts'

const timeout = 120_000
let site: Site
beforeAll(async () => {
  site = await openSite()
}, timeout)
afterAll(() => site.close(), timeout)

describe('nothing is lost, doubled or out of order when it strikes at', () => {
  test.each([
    'writer: commit sent × connection cut',
    'relay: published × SIGKILL',
    'stored consumer: messages removed × backend terminated',
  ])('%s', { timeout }, async (name) => {
    const [cell] = cellsLike(name)
    if (cell === undefined) throw new Error(`There is no cell ${name}.`)
    expect(await playCell(site, cell)).toMatchObject({ cell: name, fired: true, violations: [] })
  })
})

test('a consumer that acknowledges before it commits is found out', { timeout }, async () => {
  const [cell] = cellsLike('consumer: inbox claimed × SIGKILL').filter(({ place }) => place.role === 'consumer')
  if (cell === undefined) throw new Error('There is no such cell.')
  const { fired, violations, explanation } = await playCell(site, cell, { mistake: 'acknowledges first', patienceMs: 5_000 })
  expect(fired).toBe(true)
  expect(violations).toContainEqual(expect.stringMatching(/^one-effect: account \w v\d was never applied by ledger$/))
  // It is lost, not late: nobody has it any more.
  expect(violations).not.toContainEqual(expect.stringMatching(/outbox rows|messages at the broker/))
  expect(explanation).toMatch(/commit {2}account \w v\d/)
})
