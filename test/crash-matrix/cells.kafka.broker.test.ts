import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { testKafka } from '../setup/test-kafka.ts'
import { playCell } from './cell.ts'
import { cellsLike } from './matrix.ts'
import { sharedKafka } from './shared-kafka.ts'
import { openSite, type Site } from './site.ts'

const timeout = 900_000
const { brokers } = await testKafka()
let site: Site
beforeAll(async () => {
  site = await openSite(sharedKafka(brokers))
}, timeout)
afterAll(() => site.close(), timeout)

describe('over Kafka nothing is lost, doubled or out of order when it strikes at', () => {
  test.each(['consumer: offsets committing × SIGKILL (Kafka)'])('%s', { timeout }, async (name) => {
    const cell = cellsLike(name).find(({ place }) => name.startsWith(`${place.role}:`))
    if (cell === undefined) throw new Error(`There is no cell ${name}.`)
    expect(await playCell(site, cell)).toMatchObject({ cell: name, fired: true, violations: [] })
  })
})

test('a consumer that commits its offsets before the database is found out', { timeout }, async () => {
  const [cell] = cellsLike('consumer: effect written × SIGKILL (Kafka)')
  if (cell === undefined) throw new Error('There is no such cell.')
  const { fired, violations } = await playCell(site, cell, { mistake: 'acknowledges first', patienceMs: 2_500 })
  expect(fired).toBe(true)
  // While it stood there, and after it was gone.
  expect(violations).toContainEqual(expect.stringMatching(/^partition \d: \d+ was committed, but \d+ not processed$/))
  expect(violations).toContainEqual(expect.stringMatching(/^one-effect: account \w v\d was never applied by ledger$/))
})

test('a member that joins again while there is work left is crashed there too', { timeout }, async () => {
  const name = 'consumer: joining again × SIGKILL (Kafka)'
  const cell = cellsLike(name).find(({ place }) => place.role === 'consumer')
  if (cell === undefined) throw new Error(`There is no cell ${name}.`)
  const early = { ...cell, place: { ...cell.place, onHit: 1 } }
  expect(await playCell(site, early)).toMatchObject({ cell: name, fired: true, violations: [] })
})
