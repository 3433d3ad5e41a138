import { expect, test } from 'vitest'
import type { Item } from '../model/batch-item.ts'
import {
  decideOrder,
  decideStored,
  latenessOf,
  positionChanges,
  readClaim,
  transferredHolds,
  type TurnOptions,
} from './ordering.ts'

type Kind = Item['origin']['kind']

const handler = (): void => undefined
const routes = { delta: { kind: 'delta', handler }, state: { kind: 'state', handler }, none: undefined }

/** An event of the one aggregate of these tests, whose deltas are handled. */
function item(version: number, kind: Kind = 'delivery', route: keyof typeof routes = 'delta'): Item {
  const event = { id: `v${version}`, aggregateType: 'account', version: BigInt(version) }
  return { key: aggregate, event, route: routes[route], sequential: true, origin: { kind } } as unknown as Item
}

const aggregate = JSON.stringify(['account', 'x'])
const first: TurnOptions = { deltaStart: 'first', byVersion: [] }
const any: TurnOptions = { deltaStart: 'any', byVersion: [] }

interface Position {
  readonly version: number
  readonly waiting?: number
  readonly heldBy?: string
  readonly nextHolder?: number
}

function claimed(
  { version, waiting = 0, heldBy, nextHolder }: Position,
  seen: readonly string[] = [],
): ReturnType<typeof readClaim> {
  const { aggregates } = readClaim([
    {
      id: null,
      letter_of: null,
      aggregate_type: 'account',
      aggregate_id: 'x',
      version: `${version}`,
      waiting,
      held_by: heldBy ?? null,
      taken_from: null,
      taken_to: null,
      jumped_from: null,
    },
  ])
  const [only] = aggregates.values()
  if (only === undefined) throw new Error('There is no aggregate.')
  if (nextHolder !== undefined) only.nextHolder = { eventId: `v${nextHolder}`, version: BigInt(nextHolder) }
  return { seen: new Set(seen), letters: new Set(), aggregates: new Map([[aggregate, only]]), jumpedFrom: new Map() }
}

/** What becomes of the items, and where the aggregate is then. */
function decide(items: readonly Item[], claim: ReturnType<typeof readClaim>, options = first): Record<string, unknown> {
  const turns = decideOrder(items, claim, options)
  const names = Object.entries(turns).map(([turn, some]) => [turn, some.map(({ event }: Item) => event.id)] as const)
  return {
    ...Object.fromEntries(names.filter(([, some]) => some.length > 0)),
    changes: positionChanges(claim.aggregates).map(({ version, release }) => ({ version: Number(version), release })),
  }
}

test('a redriven state closes the gap before it, and its aggregate goes on behind it', () => {
  const claim = claimed({ version: 0, waiting: 2, heldBy: 'v57' })
  expect(decide([item(57, 'dead', 'state')], claim)).toEqual({ apply: ['v57'], changes: [{ version: 57, release: true }] })
  expect(decideStored([item(1, 'waiting'), item(58, 'waiting')], claim.aggregates, first)).toMatchObject({
    skip: [{ event: { id: 'v1' } }],
    apply: [{ event: { id: 'v58' } }],
  })
})

test('whoever comes behind a letter that is settled waits for the next one that is redriven', () => {
  const claim = claimed({ version: 0, heldBy: 'v1', nextHolder: 2 })
  expect(decide([item(1, 'dead'), item(3, 'delivery', 'state')], claim, any)).toEqual({
    apply: ['v1'],
    wait: ['v3'],
    changes: [{ version: 1, release: true }],
  })
  expect(transferredHolds(claim.aggregates)).toMatchObject([{ heldBy: 'v2' }])
})

test('a redriven state does not close the gap over an older letter that is redriven as well', () => {
  const claim = claimed({ version: 1, heldBy: 'v3', nextHolder: 2 })
  expect(decide([item(3, 'dead', 'state')], claim)).toEqual({ wait: ['v3'], changes: [{ version: 1, release: true }] })
  expect(transferredHolds(claim.aggregates)).toMatchObject([{ heldBy: 'v2' }])
})

test('a redriven delta takes its turn: the next is applied, one ahead waits, and one that was passed is applied late', () => {
  expect(decide([item(5, 'dead'), item(6, 'dead')], claimed({ version: 4, heldBy: 'v5' }))).toEqual({
    apply: ['v5', 'v6'],
    changes: [{ version: 6, release: true }],
  })
  expect(decide([item(6, 'dead')], claimed({ version: 4, heldBy: 'v5' }))).toEqual({ wait: ['v6'], changes: [] })
  expect(decide([item(9, 'dead')], claimed({ version: 4, heldBy: 'v9' }))).toEqual({
    wait: ['v9'],
    changes: [{ version: 4, release: true }],
  })
  expect(decide([item(3, 'dead')], claimed({ version: 4 }))).toEqual({ apply: ['v3'], changes: [] })
})

test('behind another dead letter a redriven state waits as well: applied first, it would be followed by what it stands for', () => {
  expect(decide([item(9, 'dead', 'state')], claimed({ version: 4, heldBy: 'v5' }))).toEqual({ wait: ['v9'], changes: [] })
})

test('what was seen to its end neither holds its aggregate nor leaves a gap', () => {
  expect(decide([item(5, 'dead')], claimed({ version: 4, heldBy: 'v5' }, ['v5']))).toEqual({
    seen: ['v5'],
    changes: [{ version: 5, release: true }],
  })
  expect(decide([item(6), item(7)], claimed({ version: 5, waiting: 1 }, ['v6']))).toEqual({
    seen: ['v6'],
    apply: ['v7'],
    changes: [{ version: 7, release: false }],
  })
  expect(decide([item(8)], claimed({ version: 5 }, ['v8']))).toEqual({ seen: ['v8'], changes: [] })
})

test('an aggregate that may begin anywhere begins with what waits, and with the first of that', () => {
  expect(decide([item(10)], claimed({ version: 0 }), any)).toEqual({ apply: ['v10'], changes: [{ version: 10, release: false }] })
  const claim = claimed({ version: 0, waiting: 3 })
  expect(decide([item(10)], claim, any)).toEqual({ wait: ['v10'], changes: [] })
  const stored = [item(7, 'waiting', 'none'), item(8, 'waiting'), item(9, 'waiting')]
  expect(decideStored(stored, claim.aggregates, any)).toMatchObject({ apply: stored, skip: [] })
  const refused = { ...item(7, 'waiting'), refusal: { reason: 'invalid', error: 'unreadable' } } as const
  const again = claimed({ version: 0, waiting: 2 })
  expect(decideStored([refused, item(8, 'waiting')], again.aggregates, any)).toMatchObject({ apply: [], skip: [] })
  const state = item(9, 'waiting', 'state')
  expect(decideStored([refused, state], again.aggregates, any)).toMatchObject({ apply: [], skip: [] })
  expect(decide([item(7, 'waiting')], claimed({ version: 0, waiting: 2 }), any)).toMatchObject({ apply: ['v7'] })
  expect(decide([item(7, 'dead')], claimed({ version: 0, waiting: 2, heldBy: 'v7' }), any)).toMatchObject({ apply: ['v7'] })
  expect(decide([item(8, 'dead')], claimed({ version: 0, waiting: 1 }), any)).toMatchObject({ wait: ['v8'] })
})

test('what is redriven behind a newer version is late, although its batch has a newer one still', () => {
  const items = [item(3, 'dead', 'state'), item(6, 'dead', 'state')]
  expect(items.map(latenessOf(items, claimed({ version: 5 }), first))).toEqual([true, false])
  const next = [3, 4].map((version) => ({ ...item(version, 'dead', 'state'), sequential: false }))
  // Moved by the batch itself, as far as anybody knows; without an inbox it is moved by what is applied.
  expect(next.map(latenessOf(next, claimed({ version: 4 }), first))).toEqual([false, false])
  expect(next.map(latenessOf(next, claimed({ version: 4 }), { ...first, byVersion: ['account'] }))).toEqual([true, false])
})
