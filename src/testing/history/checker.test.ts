import { expect, test } from 'vitest'
import { checkHistory, createChecker, explainVerdict, type Verdict } from './checker.ts'
import type { HistoryEntry } from './entry.ts'
import { invariantIds, type InvariantId } from './invariants.ts'

const version = (id: string, nth: number, event = `${id[0]}${nth}`) => ({ event, aggregate: `video ${id}`, version: nth })
const commit = (...of: Parameters<typeof version>): HistoryEntry => ({ op: 'commit', source: 'writer', ...version(...of) })
const log = (...of: Parameters<typeof version>): HistoryEntry => ({
  op: 'log',
  source: 'broker',
  topic: 'video.events',
  key: of[0],
  ...version(...of),
})
const voided = { ...log('a', 1), isVoid: true } as HistoryEntry
const apply = (event: string, more: { consumer?: string; generation?: number } = {}): HistoryEntry => ({
  op: 'apply',
  source: 'catalog',
  consumer: 'catalog',
  event,
  ...more,
})
const follow: HistoryEntry = { op: 'follow', consumer: 'catalog', types: ['video'], projects: ['video'] }
const rest: HistoryEntry = { op: 'rest', left: { 'outbox rows': 0 }, tookMs: 10, limitMs: 100 }
const invoke = (call: string): HistoryEntry => ({ op: 'invoke', call, request: 'r1', payload: '5' })
const answer = (call: string, outcome: 'ok' | 'fail'): HistoryEntry => ({ op: 'answer', call, request: 'r1', outcome })
const effect = (more: { call: string; payload?: string; response?: string }): HistoryEntry => ({
  op: 'effect',
  request: 'r1',
  ...more,
})
const texts = ({ violations }: Verdict): string[] => violations.map(({ text }) => text)

/** A life without blame: duplicates, a repeated command, an unanswered call, reads of all kinds. */
const sound: readonly HistoryEntry[] = [
  follow,
  invoke('c1'),
  commit('a', 1),
  log('a', 1),
  commit('a', 2),
  log('a', 2),
  log('a', 1),
  commit('b', 1),
  log('b', 1),
  { op: 'deliver', consumer: 'catalog', event: 'a1', aggregate: 'video a', version: 1 },
  apply('a1'),
  { op: 'observe', consumer: 'catalog', aggregate: 'video a', version: 1 },
  apply('a2'),
  { op: 'observe', consumer: 'catalog', aggregate: 'video a', version: 2 },
  apply('b1'),
  { op: 'read', aggregate: 'video a', atLeast: 2, served: 2, by: 'projection' },
  { op: 'read', aggregate: 'video a', served: 1, by: 'projection' },
  { op: 'state', aggregate: 'video a', value: 'two' },
  { op: 'state', aggregate: 'video b', value: null },
  { op: 'state', consumer: 'catalog', aggregate: 'video a', value: 'two' },
  invoke('c2'),
  { ...answer('c2', 'ok'), response: '17' } as HistoryEntry,
  effect({ call: 'c1', payload: '5', response: '17' }),
  { op: 'excuse', consumer: 'catalog', event: 'b1', why: 'dead letter: failed' },
  rest,
]

test('a history in which everything was kept passes, and each of the eleven invariants was put to the test', () => {
  const verdict = checkHistory(sound)
  expect(explainVerdict(verdict)).toBe(`pass: 0 violations in 25 entries at rest; judged: ${invariantIds.join(', ')}`)
  expect(verdict.counts).toMatchObject({ entries: 25, events: 3, duplicates: 1, ops: { commit: 3, log: 4 } })
  expect(Object.values(verdict.invariants).map(({ state }) => state)).toEqual(invariantIds.map(() => 'held'))
})

const broken: readonly {
  readonly what: string
  readonly history: readonly HistoryEntry[]
  readonly found: readonly string[]
}[] = [
  {
    what: 'an event is committed and never published',
    history: [commit('a', 1), commit('a', 2), log('a', 1), rest],
    found: ['no-loss: video a v2 was committed and never published'],
  },
  {
    what: 'a message is published that nobody committed',
    history: [commit('a', 1), log('a', 1), log('a', 2), rest],
    found: ['no-ghost: video a v2 was published and was never committed'],
  },
  {
    what: 'a message has the id of another version',
    history: [commit('a', 1), log('a', 2, 'a1')],
    found: ['no-ghost: video a v2 has the id of video a v1'],
  },
  {
    what: 'a message that came before its commit has the id of another version',
    history: [log('a', 2, 'a1'), commit('a', 1)],
    found: ['no-ghost: video a v2 has the id of video a v1'],
  },
  {
    what: 'two events are committed as one version',
    history: [commit('a', 1), commit('a', 1, 'other')],
    found: ['no-ghost: video a v1 was committed as two events'],
  },
  {
    what: 'a consumer applies an event that nobody committed',
    history: [apply('x1'), rest],
    found: ['no-ghost: event x1 was applied and was never committed'],
  },
  {
    what: 'a reader sees a version that nobody committed',
    history: [commit('a', 1), log('a', 1), { op: 'read', aggregate: 'video a', served: 2, by: 'projection' }, rest],
    found: ['no-ghost: video a v2 was read and never committed'],
  },
  {
    what: 'a version is first published after a higher one',
    history: [commit('a', 1), commit('a', 2), log('a', 2), log('a', 1)],
    found: ['first-occurrence-order: video a v1 was first published after v2'],
  },
  {
    what: 'versions that reached one topic in order reach another out of order',
    history: [log('a', 1), log('a', 2), { ...log('a', 2), topic: 'other' }, { ...log('a', 1), topic: 'other' }] as HistoryEntry[],
    found: ['first-occurrence-order: video a v1 was first published after v2'],
  },
  {
    what: 'an effect happens twice',
    history: [commit('a', 1), log('a', 1), apply('a1'), apply('a1')],
    found: ['one-effect: video a v1 was applied twice by catalog'],
  },
  {
    what: 'an event is applied, and its dead letter still waits for somebody',
    history: [
      commit('a', 1),
      log('a', 1),
      apply('a1'),
      { op: 'excuse', consumer: 'catalog', event: 'a1', why: 'dead letter: failed', isDead: true },
      rest,
    ],
    found: ['one-fate: event a1 was applied by catalog, which has a dead letter of it that is not settled'],
  },
  {
    what: 'an effect never happens',
    history: [follow, commit('a', 1), log('a', 1), commit('a', 2), log('a', 2), apply('a2'), rest],
    found: ['one-effect: video a v1 was never applied by catalog'],
  },
  {
    what: 'an effect never happens of an event that was published before the void in its place',
    history: [follow, commit('a', 1), log('a', 1), voided, rest],
    found: ['one-effect: video a v1 was never applied by catalog'],
  },
  {
    what: 'a projection goes back',
    history: [2, 3, 1].map((nth) => ({ op: 'observe', consumer: 'catalog', aggregate: 'video a', version: nth }) as const),
    found: ['version-monotonic: video a at catalog went back from v3 to v1'],
  },
  {
    what: 'effects leave a projection at a lower version',
    history: [
      commit('a', 1),
      commit('a', 2),
      { op: 'apply', consumer: 'catalog', event: 'a2', after: 2 },
      { op: 'apply', consumer: 'catalog', event: 'a1', after: 1 },
    ],
    found: ['version-monotonic: video a at catalog went back from v2 to v1'],
  },
  {
    what: 'a projection differs from the owner',
    history: [
      { op: 'state', aggregate: 'video a', value: 'two' },
      { op: 'state', consumer: 'catalog', aggregate: 'video a', value: 'one' },
      rest,
    ],
    found: ['projection-equals-owner: video a is one at catalog, and two at the owner'],
  },
  {
    what: 'a projection lacks a row',
    history: [follow, { op: 'state', aggregate: 'video a', value: 'two' }, rest],
    found: ['projection-equals-owner: video a is not there at catalog, and two at the owner'],
  },
  {
    what: 'a projection has a row that the owner has not',
    history: [{ op: 'state', consumer: 'catalog', aggregate: 'video a', value: 'two' }, rest],
    found: ['projection-equals-owner: video a is two at catalog, and not there at the owner'],
  },
  {
    what: 'a reader with a token sees something older',
    history: [{ op: 'read', aggregate: 'video a', atLeast: 3, served: 2, by: 'projection' }],
    found: ['read-your-writes: video a was read as v2 from the projection with a token of v3'],
  },
  {
    what: 'a request takes effect twice',
    history: [effect({ call: 'c1' }), effect({ call: 'c2' })],
    found: ['one-effect-per-command: r1 took effect twice'],
  },
  {
    what: 'failure is told to the very call that took effect',
    history: [invoke('c1'), answer('c1', 'fail'), invoke('c2'), answer('c2', 'ok'), effect({ call: 'c1' })],
    found: ['ambiguity-is-info: call c1 of r1 took effect and was told that it failed'],
  },
  {
    what: 'something is left when everything should be over',
    history: [{ op: 'rest', left: { 'outbox rows': 3 } }],
    found: ['liveness: 3 outbox rows are left'],
  },
  {
    what: 'recovery takes longer than allowed',
    history: [{ op: 'rest', tookMs: 101, limitMs: 100 }],
    found: ['liveness: it took 101 ms to come to rest, and 100 ms are allowed'],
  },
]

test.each(broken)('it is found, and nothing else, when $what', ({ history, found }) => {
  expect(texts(checkHistory(history))).toEqual(found)
})

test('there is a broken history for each invariant', () => {
  const covered = broken.map(({ found }) => found[0]?.split(':')[0] as InvariantId)
  expect(new Set(covered)).toEqual(new Set(invariantIds))
})

const allowed: readonly { readonly what: string; readonly history: readonly HistoryEntry[] }[] = [
  {
    what: 'an event that an operator dropped',
    history: [follow, commit('a', 1), { op: 'excuse', event: 'a1', why: 'dropped' }, rest],
  },
  {
    what: 'an effect that a dead letter stands for',
    history: [follow, commit('a', 1), log('a', 1), { op: 'excuse', event: 'a1', consumer: 'catalog', why: 'dead letter' }, rest],
  },
  {
    what: 'an effect whose dead letter was settled with it',
    history: [
      commit('a', 1),
      log('a', 1),
      { op: 'excuse', consumer: 'catalog', event: 'a1', why: 'dead letter: failed', isDead: true },
      apply('a1'),
      { op: 'excuse', consumer: 'catalog', event: 'a1', why: 'dead letter: failed' },
      rest,
    ],
  },
  {
    what: 'a void in the place of an event, without an effect',
    history: [follow, commit('a', 1), voided, rest],
  },
  {
    what: 'a void without an effect, and a late attempt at the event itself behind it',
    history: [follow, commit('a', 1), voided, log('a', 1), rest],
  },
  {
    what: 'a void that readers may have got before the event itself, for want of an order',
    history: [
      follow,
      commit('a', 1),
      ...[false, true].map((isVoid) => ({ ...log('a', 1), isUnordered: true, isVoid }) as HistoryEntry),
      rest,
    ],
  },
  {
    what: 'a topic that two recorders watch, and duplicates in it',
    history: ['one', 'two'].flatMap((source) => [1, 2, 1, 2].map((nth) => ({ ...log('a', nth), source }))),
  },
  {
    what: 'another generation that applies the same event',
    history: [commit('a', 1), log('a', 1), apply('a1'), apply('a1', { generation: 2 }), rest],
  },
  {
    what: 'any order of a stream that promises none',
    history: [commit('a', 1), commit('a', 2), ...[2, 1].map((nth) => ({ ...log('a', nth), isUnordered: true }) as never), rest],
  },
  {
    what: 'two observers of which one is behind the other',
    history: [2, 1].map((nth) => ({
      op: 'observe',
      source: `observer ${nth}`,
      consumer: 'catalog',
      aggregate: 'video a',
      version: nth,
    })),
  },
]

test.each(allowed)('it is no violation: $what', ({ history }) => {
  expect(texts(checkHistory(history))).toEqual([])
})

test('before the history comes to rest nothing is called missing; asked as if it ended now, it is', () => {
  const checker = createChecker()
  checker.record(commit('a', 1))
  checker.record(log('b', 1))
  expect(checker.verdict()).toMatchObject({ verdict: 'pass', atRest: false })
  expect(texts(checker.verdict({ atRest: true }))).toEqual([
    'no-loss: video a v1 was committed and never published',
    'no-ghost: video b v1 was published and was never committed',
  ])
  checker.record(log('a', 1))
  checker.record(commit('b', 1))
  expect(checker.verdict({ atRest: true })).toMatchObject({ verdict: 'pass', atRest: true })
})

test('an entry of an unknown kind is an error, not something to pass over', () => {
  const misspelt = { op: 'aply', consumer: 'catalog', event: 'a1' } as unknown as HistoryEntry
  expect(() => checkHistory([commit('a', 1), misspelt])).toThrow(/Line 2 of the history has the op "aply"/)
})

test.each<{ readonly says: Omit<Extract<HistoryEntry, { op: 'rest' }>, 'op'>; readonly state: string }>([
  { says: {}, state: 'not judged' },
  { says: { tookMs: 5 }, state: 'not judged' },
  { says: { tookMs: 5, limitMs: 10 }, state: 'held' },
  { says: { left: {} }, state: 'held' },
])('of a rest that says $says, liveness is $state', ({ says, state }) => {
  expect(checkHistory([{ op: 'rest', ...says }]).invariants.liveness.state).toBe(state)
})

test('duplicates are counted in each log by itself', () => {
  const logs = ['one', 'two', 'two'].map((source) => ({ ...log('a', 1), source }))
  expect(checkHistory(logs).counts.duplicates).toBe(1)
})

test('a violation is explained by the few lines that show it', () => {
  const history = [...sound.slice(0, -1), commit('c', 1), commit('c', 2), log('c', 2), log('b', 1), log('c', 1), apply('c1')]
  expect(explainVerdict(checkHistory(history))).toBe(
    [
      `fail: 1 violations in 30 entries, still under way; judged: ${invariantIds.filter((id) => !['no-loss', 'projection-equals-owner', 'liveness'].includes(id)).join(', ')}`,
      'first-occurrence-order: video c v1 was first published after v2',
      '    27  broker   log     video c v2 (c2) in video.events',
      '    29  broker   log     video c v1 (c1) in video.events',
    ].join('\n'),
  )
})

test('of a thousand violations of one kind twenty are shown and all are counted', () => {
  const verdict = checkHistory([...Array.from({ length: 1_000 }, (_, i) => commit(`a${i}`, 1, `e${i}`)), rest])
  expect(verdict.violations).toHaveLength(20)
  expect(verdict.invariants['no-loss']).toEqual({ checked: 1_000, violations: 1_000, state: 'violated' })
})
