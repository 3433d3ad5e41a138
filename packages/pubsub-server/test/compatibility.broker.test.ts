/**
 * Every call and option of the local Pub/Sub server over Google's official client: something that must work and something that
 * must be refused, with the status. The table is printed when all have run; a cell is filled only by a case that passed.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { deliveryCases } from './delivery-cases.ts'
import { codes, openHarness } from './harness.ts'
import type { Harness } from './harness.ts'
import { iamCases } from './iam-cases.ts'
import { schemaCases } from './schema-cases.ts'
import { snapshotCases } from './snapshot-cases.ts'
import { streamCases } from './stream-cases.ts'
import { subscriptionCases } from './subscription-cases.ts'
import { topicCases } from './topic-cases.ts'

const cases = [
  ...topicCases,
  ...subscriptionCases,
  ...deliveryCases,
  ...streamCases,
  ...snapshotCases,
  ...schemaCases,
  ...iamCases,
]
const passed = new Map<string, string>()
let h: Harness

beforeAll(async () => {
  h = await openHarness()
})

afterAll(async () => {
  const rows = cases.map(({ name }) => `| ${name} | ${passed.get(`${name}+`) ?? ''} | ${passed.get(`${name}-`) ?? ''} |`)
  console.log(['| RPC / option | accepts | refuses |', '|---|---|---|', ...rows].join('\n'))
  await h.close()
})

describe.each(cases)('$name', ({ name, accepts, refuses }) => {
  test(`accepts ${accepts.what}`, async () => {
    await accepts.run(h)
    passed.set(`${name}+`, accepts.what)
  })

  test(`refuses ${refuses.what} with ${refuses.code}`, async () => {
    await expect(refuses.run(h)).rejects.toMatchObject({ code: codes[refuses.code] })
    passed.set(`${name}-`, `${refuses.what}: ${refuses.code}`)
  })
})

test('no cell of the table is empty, and no line is there twice', () => {
  expect(passed.size).toBe(cases.length * 2)
})
