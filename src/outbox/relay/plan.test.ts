import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { PublishOutcome } from '../../transport/port/transport.ts'
import type { DispatchRow } from '../tables/dispatch.sql.ts'
import { pausedError } from '../tables/pause.sql.ts'
import { decide, planRuns, type Decision, type OutcomeRules, type PlanRules } from './plan.ts'

/** Topic `shut` is to be tried in five seconds, topic `probed` now. */
const topics: PlanRules['topics'] = {
  shut: (topic) => (topic === 'shut' ? { probeMs: 5_000, restMs: 60_000, error: new Error('no such topic') } : undefined),
  isProbed: (topic) => topic === 'probed',
}
const rules: PlanRules = { orderingOf: () => 'aggregate', isPaused: () => false, topics, quota: 1_000 }
const outcomeRules: OutcomeRules = {
  maxAttempts: 3,
  backoffMs: (failures) => failures * 100,
  onPark: () => 'hold',
  topics,
  windowOf: () => 7,
}
const confirmed: PublishOutcome = { status: 'confirmed', messageId: 'm' }
const rejected: PublishOutcome = { status: 'rejected', error: new Error('refused') }
const unroutable: PublishOutcome = { status: 'unroutable', error: new Error('no such topic') }
const unavailable: PublishOutcome = { status: 'unavailable', error: new Error('down') }
const notSent: PublishOutcome = { status: 'not-sent' }

function row(seq: number, key: string, more: Partial<DispatchRow> = {}): DispatchRow {
  return {
    lane: 0,
    seq: String(seq),
    key,
    event_id: `e${seq}`,
    state: 0,
    publish_attempts: 0,
    void: false,
    blocked: false,
    wait_ms: 0,
    topic: 't',
    aggregate_type: 'video',
    aggregate_id: key,
    version: String(seq),
    event_type: 'VideoPublished',
    schema_version: 1,
    content_type: 'application/json',
    payload: new Uint8Array(),
    headers: '{}',
    occurred_at: '2025-01-01T00:00:00.000000Z',
    ...more,
  }
}

/** What was decided, by sequence numbers. */
function summary({ confirmed: clean, settlement, outage }: Decision): unknown {
  return {
    clean: clean.map(({ seq }) => Number(seq)),
    settled: settlement.confirmed.map(({ seq }) => Number(seq)),
    stopped: settlement.stopped.map(({ seq, park, charge, delayMs }) => ({ seq: Number(seq), park, charge, delayMs })),
    outage: outage?.message,
  }
}

function play(
  rows: readonly DispatchRow[],
  outcomes: readonly PublishOutcome[],
  more: Partial<PlanRules & OutcomeRules> = {},
): unknown {
  return summary(decide(planRuns(rows, { ...rules, ...more }), outcomes, { ...outcomeRules, ...more }))
}

describe('what goes out, and what becomes of it', () => {
  test('a run of due rows that were all confirmed is clean', () => {
    expect(play([row(1, 'a'), row(2, 'b'), row(3, 'a')], [confirmed, confirmed, confirmed])).toEqual({
      clean: [1, 3, 2],
      settled: [],
      stopped: [],
      outage: undefined,
    })
  })

  test('a refused row becomes the head, charged; what was before it goes, what is behind it stays', () => {
    expect(play([row(1, 'a'), row(2, 'a'), row(3, 'a')], [confirmed, rejected, notSent])).toEqual({
      clean: [],
      settled: [1],
      stopped: [{ seq: 2, park: false, charge: 1, delayMs: 100 }],
      outage: undefined,
    })
  })

  test('what was confirmed behind a failure, or behind what was not sent, goes out again in its turn', () => {
    expect(play([row(1, 'a'), row(2, 'a')], [rejected, confirmed])).toMatchObject({
      clean: [],
      settled: [],
      stopped: [{ seq: 1 }],
    })
    expect(play([row(1, 'a'), row(2, 'a')], [notSent, confirmed])).toMatchObject({ clean: [], settled: [], stopped: [] })
  })

  test('a head that went out is settled, never clean: the next must be promoted', () => {
    const rows = [row(1, 'a', { state: 1 }), row(2, 'a', { state: 2 })]
    expect(play(rows, [confirmed, confirmed])).toMatchObject({ clean: [], settled: [1, 2], stopped: [] })
  })

  test('an outage charges nobody and moves nothing', () => {
    expect(play([row(1, 'a'), row(2, 'b')], [unavailable, notSent], { maxAttempts: 1 })).toEqual({
      clean: [],
      settled: [],
      stopped: [],
      outage: 'down',
    })
  })

  test('an unknown outcome among others stops its key, uncharged', () => {
    expect(play([row(1, 'a'), row(2, 'b')], [unavailable, confirmed])).toMatchObject({
      clean: [2],
      stopped: [{ seq: 1, park: false, charge: 0, delayMs: 100 }],
      outage: undefined,
    })
  })

  test('what its topic does not take is no outage: it stops its key until the topic is tried again, uncharged', () => {
    const sent = [row(1, 'a', { topic: 'shut' }), row(2, 'b', { topic: 'shut' })]
    const plan = planRuns(sent, { ...rules, topics: { shut: () => undefined, isProbed: () => false } })
    const decision = decide(plan, [unroutable, unroutable], { ...outcomeRules, maxAttempts: 1 })
    expect(decision.isReached).toBe(true)
    expect(summary(decision)).toEqual({
      clean: [],
      settled: [],
      stopped: [1, 2].map((seq) => ({ seq, park: false, charge: 0, delayMs: 5_000 })),
      outage: undefined,
    })
  })

  test('an outage is one although a topic is missing as well', () => {
    expect(play([row(1, 'a'), row(2, 'b')], [unroutable, unavailable])).toMatchObject({ stopped: [], outage: 'down' })
  })

  test('the last allowed refusal parks; an unknown outcome parks nothing, whatever was charged before', () => {
    const tired = row(1, 'a', { state: 1, publish_attempts: 2 })
    expect(play([tired, row(2, 'b')], [rejected, confirmed])).toMatchObject({ stopped: [{ seq: 1, park: true, charge: 1 }] })
    const exhausted = row(1, 'a', { state: 1, publish_attempts: 9, void: true })
    expect(play([exhausted, row(2, 'b')], [unavailable, confirmed])).toMatchObject({
      stopped: [{ seq: 1, park: false, charge: 0 }],
    })
  })

  test('where parked events pass, an empty marker takes the place at once, and parks if even that is refused', () => {
    const decisionFor = (isVoid: boolean): Decision =>
      decide(planRuns([row(1, 'a', { state: 1, publish_attempts: 2, void: isVoid })], rules), [rejected], {
        ...outcomeRules,
        onPark: () => 'pass',
      })
    expect(decisionFor(false).settlement.stopped).toMatchObject([{ park: false, void: true, delayMs: 0 }])
    expect(decisionFor(true).settlement.stopped).toMatchObject([{ park: true, void: false }])
  })
})

describe('what does not go out', () => {
  test('rows behind a head are left where they are, and their lane is held', () => {
    const plan = planRuns([row(1, 'a', { blocked: true }), row(2, 'b')], rules)
    expect(plan.messages.map(({ orderingKey }) => orderingKey)).toEqual(['b'])
    expect(decide(plan, [confirmed], outcomeRules).settlement.hold).toEqual([{ lane: 0, depth: 7 }])
  })

  test('an event before its time becomes a head that is due then; the rest of its key waits behind it', () => {
    const rows = [row(1, 'a'), row(2, 'a', { wait_ms: 5_000 }), row(3, 'a')]
    expect(play(rows, [confirmed])).toMatchObject({ settled: [1], stopped: [{ seq: 2, park: false, charge: 0, delayMs: 5_000 }] })
  })

  test('an event before its time keeps its place when what is before it fails', () => {
    const rows = [row(1, 'a'), row(2, 'a', { wait_ms: 5_000 }), row(3, 'b')]
    expect(play(rows, [rejected, confirmed])).toMatchObject({ clean: [3], stopped: [{ seq: 1 }] })
  })

  test('a paused key becomes a head that is looked at again later, uncharged', () => {
    const plan = planRuns([row(1, 'a'), row(2, 'b')], { ...rules, isPaused: (_, id) => id === 'a' })
    expect(plan.messages).toHaveLength(1)
    expect(decide(plan, [confirmed], outcomeRules).settlement.stopped).toMatchObject([
      { seq: '1', charge: 0, park: false, error: pausedError },
    ])
  })

  test('events of a topic that is shut become heads without being tried, and say why; one of them is the next probe', () => {
    const rows = [row(1, 'a', { topic: 'shut' }), row(2, 'a'), row(3, 'b', { topic: 'shut' }), row(4, 'c')]
    const plan = planRuns(rows, rules)
    expect(plan.messages.map(({ orderingKey }) => orderingKey)).toEqual(['c'])
    const stopped = { charge: 0, park: false, error: 'waits for topic shut: no such topic' }
    expect(decide(plan, [confirmed], outcomeRules).settlement.stopped).toMatchObject([
      { seq: '1', delayMs: 5_000, ...stopped },
      { seq: '3', delayMs: 60_000, ...stopped },
    ])
  })

  test('of a topic that is probed one key goes out; the others stay where they are, with all that is behind them', () => {
    const rows = [
      row(1, 'a', { topic: 'probed' }),
      row(2, 'b', { topic: 'probed' }),
      row(3, 'b'),
      row(4, 'a', { topic: 'probed' }),
      row(5, 'c'),
    ]
    const plan = planRuns(rows, rules)
    expect(plan.messages.map(({ orderingKey }) => orderingKey)).toEqual(['a', 'a', 'c'])
    expect(summary(decide(plan, [confirmed, confirmed, confirmed], outcomeRules))).toMatchObject({
      clean: [1, 4, 5],
      settled: [],
      stopped: [],
    })
  })

  test('a key changes its topic from one pass to the next: the first event of another one becomes a head that is due at once', () => {
    const rows = [row(1, 'a'), row(2, 'a'), row(3, 'a', { topic: 'u' }), row(4, 'a'), row(5, 'b', { topic: 'u' })]
    expect(play(rows, [confirmed, confirmed, confirmed])).toEqual({
      clean: [5],
      settled: [1, 2],
      stopped: [{ seq: 3, charge: 0, delayMs: 0, park: false }],
      outage: undefined,
    })
  })

  test('a key would have sent more if it sent all that was read of it, or all that its quota allows', () => {
    const behind = [2, 3, 4].map((seq) => row(seq, 'a', { state: 2 }))
    const ranOut = (head: Partial<DispatchRow>, quota: number, chain = behind): boolean =>
      planRuns([row(1, 'a', { state: 1, ...head }), ...chain], { ...rules, quota }).ranOut
    expect(ranOut({}, 10)).toBe(true)
    expect(ranOut({}, 2)).toBe(true)
    expect(ranOut({ topic: 'u' }, 10)).toBe(false)
    expect(ranOut({ topic: 'shut' }, 10)).toBe(false)
    expect(ranOut({}, 10, [])).toBe(false)
  })

  test('an event that is missing parks and is named; nothing of its key goes out', () => {
    const plan = planRuns([row(1, 'a', { topic: null }), row(2, 'a')], rules)
    expect(plan).toMatchObject({ messages: [], missing: ['e1'] })
    expect(decide(plan, [], outcomeRules).settlement.stopped).toMatchObject([{ seq: '1', park: true, charge: 0 }])
  })

  test('a key above its quota gives way: the next row becomes a head that is due at once', () => {
    const rows = [1, 2, 3, 4].map((seq) => row(seq, 'a'))
    expect(play(rows, [confirmed, confirmed], { quota: 2 })).toMatchObject({
      clean: [],
      settled: [1, 2],
      stopped: [{ seq: 3, charge: 0, delayMs: 0, park: false }],
    })
  })
})

describe('for any rows and any outcomes', () => {
  const keys = fc.constantFrom('a', 'b', 'c')
  const someRow = fc.record({
    key: keys,
    blocked: fc.boolean(),
    state: fc.constantFrom(0, 0, 0, 1, 2),
    publish_attempts: fc.integer({ min: 0, max: 4 }),
    void: fc.boolean(),
    wait_ms: fc.constantFrom(0, 0, 0, 500),
    topic: fc.constantFrom('t', 't', 't', 't', 'u', 'shut', 'probed', null),
  })
  const someRows = fc
    .array(someRow, { maxLength: 40 })
    .map((all) => all.map(({ key, ...rest }, index) => row(index + 1, key, rest)))
  const someOutcome = fc.constantFrom(confirmed, confirmed, confirmed, rejected, unroutable, unavailable, notSent)
  const outcomes = fc.array(someOutcome, { minLength: 40, maxLength: 40 })
  const quota = fc.integer({ min: 1, max: 20 })

  test('a key goes out in order, without gaps, and stops at its first failure', () => {
    fc.assert(
      fc.property(someRows, outcomes, quota, (rows, answers, limit) => {
        const plan = planRuns(rows, { ...rules, quota: limit })
        const { confirmed: clean, settlement } = decide(plan, answers, outcomeRules)
        const outcomeOf = new Map(plan.runs.flatMap((run) => run.rows).map((each, index) => [each.seq, answers[index]?.status]))
        const removed = new Set([...clean, ...settlement.confirmed].map(({ seq }) => seq))
        const stopped = new Set(settlement.stopped.map(({ seq }) => seq))
        for (const key of ['a', 'b', 'c']) {
          const line = rows.filter((each) => each.key === key && !each.blocked)
          const gone = line.findIndex((each) => !removed.has(each.seq))
          const behind = gone === -1 ? [] : line.slice(gone)
          // What went is exactly the beginning of the line, and was confirmed.
          expect(behind.some((each) => removed.has(each.seq))).toBe(false)
          expect(line.filter((each) => removed.has(each.seq) && outcomeOf.get(each.seq) !== 'confirmed')).toEqual([])
          // Only the first that did not go can become the head.
          expect(behind.slice(1).some((each) => stopped.has(each.seq))).toBe(false)
          expect(line.filter((each) => removed.has(each.seq)).length).toBeLessThanOrEqual(limit)
        }
      }),
    )
  })

  test('clean are only due rows of complete runs; blocked rows are neither sent nor written', () => {
    fc.assert(
      fc.property(someRows, outcomes, quota, (rows, answers, limit) => {
        const plan = planRuns(rows, { ...rules, quota: limit })
        const { confirmed: clean, settlement } = decide(plan, answers, outcomeRules)
        const probing = plan.runs.filter((run) => run.rows.some(({ topic }) => topic === 'probed'))
        expect(probing.length).toBeLessThanOrEqual(1)
        const bySeq = new Map(rows.map((each) => [each.seq, each]))
        const stoppedKeys = new Set(settlement.stopped.map(({ seq }) => bySeq.get(seq)?.key))
        for (const run of plan.runs) expect(new Set(run.rows.map(({ topic }) => topic)).size).toBeLessThanOrEqual(1)
        for (const { seq } of clean) {
          expect(bySeq.get(seq)?.state).toBe(0)
          expect(stoppedKeys.has(bySeq.get(seq)?.key)).toBe(false)
        }
        for (const { seq } of [...clean, ...settlement.confirmed, ...settlement.stopped])
          expect(bySeq.get(seq)?.blocked).toBe(false)
        const mustHold = rows.some(({ blocked }) => blocked) || settlement.stopped.length > 0
        expect(settlement.hold.length).toBe(mustHold ? 1 : 0)
      }),
    )
  })

  test('nothing is charged, parked or made void by anything but a refusal or a missing event', () => {
    fc.assert(
      fc.property(someRows, outcomes, (rows, answers) => {
        const plan = planRuns(rows, rules)
        const { settlement } = decide(plan, answers, { ...outcomeRules, onPark: () => 'pass' })
        const sent = plan.runs.flatMap((run) => run.rows)
        const refused = new Set(sent.filter((_, index) => answers[index]?.status === 'rejected').map(({ seq }) => seq))
        const { stopped } = settlement
        expect(stopped.filter((each) => (each.charge > 0 || each.void) && !refused.has(each.seq))).toEqual([])
        const mayPark = (each: (typeof stopped)[number]): boolean => refused.has(each.seq) || plan.missing.includes(each.eventId)
        expect(stopped.filter((each) => each.park && !mayPark(each))).toEqual([])
      }),
    )
  })
})
