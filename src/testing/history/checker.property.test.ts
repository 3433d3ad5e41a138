/**
 * Random histories: those of a system that keeps its promises pass in whatever order processes are merged, and each way of
 * breaking one promise is found as a violation of that promise, with evidence that shows it on its own.
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { randomInt, seededRandom, type Random } from '../../core/service/random.ts'
import { checkHistory, type Verdict } from './checker.ts'
import type { HistoryEntry } from './entry.ts'
import { invariantIds, type InvariantId } from './invariants.ts'

type Sources = Record<string, HistoryEntry[]>

/** What several processes of a correct system would have recorded, each in its own order. */
function soundSources(random: Random): Sources {
  const sources: Sources = { writer: [], broker: [], client: [], observer: [], catalog: [], search: [], end: [] }
  const put = (source: string, ...entries: readonly HistoryEntry[]): void =>
    void sources[source]?.push(...entries.map((entry) => ({ ...entry, source })))
  for (const consumer of ['catalog', 'search']) put(consumer, { op: 'follow', consumer, types: ['video'], projects: ['video'] })
  const logged: { readonly entry: HistoryEntry & { readonly op: 'log' } }[] = []
  for (let aggregates = randomInt(random, 1, 4), nth = 0; nth < aggregates; nth += 1) {
    const aggregate = `video ${nth}`
    const versions = randomInt(random, 2, 6)
    for (let version = 1; version <= versions; version += 1) {
      const event = `e${nth}-${version}`
      put('writer', { op: 'commit', event, aggregate, version })
      const entry = { op: 'log', topic: 'video.events', key: String(nth), event, aggregate, version } as const
      logged.push({ entry })
      put('broker', entry)
      if (random.next() < 0.4) put('broker', pick(random, logged).entry)
      for (const consumer of ['catalog', 'search']) {
        put(consumer, { op: 'deliver', consumer, event, aggregate, version })
        put(consumer, { op: 'apply', consumer, event, aggregate, version, after: version })
      }
      put('observer', { op: 'observe', consumer: 'catalog', aggregate, version })
      put('client', { op: 'read', aggregate, atLeast: randomInt(random, 0, version), served: version, by: 'projection' })
    }
    put('end', { op: 'state', aggregate, value: `at ${versions}` })
    for (const consumer of ['catalog', 'search']) put('end', { op: 'state', consumer, aggregate, value: `at ${versions}` })
  }
  for (let requests = randomInt(random, 1, 4), nth = 0; nth < requests; nth += 1) command(`r${nth}`, random, put)
  // A letter that somebody settled: what becomes of it is up to the event's effects.
  put('end', { op: 'excuse', consumer: 'search', event: 'e0-1', why: 'dead letter: failed' })
  put('end', { op: 'rest', left: { rows: 0 }, tookMs: 5, limitMs: 10 })
  return sources
}

function command(request: string, random: Random, put: (source: string, ...entries: readonly HistoryEntry[]) => void): void {
  const took = random.next() < 0.8
  const calls = randomInt(random, 1, 3)
  for (let nth = 0; nth < calls; nth += 1) {
    const call = `${request}-${nth}`
    put('client', { op: 'invoke', call, request, payload: 'p' })
    const chance = random.next()
    if (chance < 0.3) put('client', { op: 'answer', call, request, outcome: 'info' })
    else if (chance < 0.8 || nth === calls - 1)
      put(
        'client',
        took
          ? { op: 'answer', call, request, outcome: 'ok', response: 'x', isReplay: nth > 0 }
          : { op: 'answer', call, request, outcome: 'fail' },
      )
  }
  if (took) put('end', { op: 'effect', request, payload: 'p', response: 'x', call: `${request}-0` })
}

/** Any interleaving that keeps the order of each source. */
function merged(sources: Sources, random: Random): HistoryEntry[] {
  const queues = Object.values(sources).map((entries) => [...entries])
  const result: HistoryEntry[] = []
  for (let open = queues.filter(({ length }) => length > 0); open.length > 0; open = open.filter(({ length }) => length > 0))
    result.push(pick(random, open).shift() as HistoryEntry)
  return result
}

function pick<Item>(random: Random, items: readonly Item[]): Item {
  return items[randomInt(random, 0, items.length - 1)] as Item
}

const seeds = fc.integer({ min: 1, max: 1_000_000 })
const summary = ({ verdict, invariants }: Verdict): unknown => ({ verdict, invariants })

test('a correct history passes, however its processes are merged, and puts every invariant to the test', () => {
  fc.assert(
    fc.property(seeds, seeds, (seed, other) => {
      const sources = soundSources(seededRandom(seed))
      const verdict = checkHistory(merged(sources, seededRandom(other)))
      expect(verdict.violations).toEqual([])
      expect(summary(verdict)).toEqual(summary(checkHistory(Object.values(sources).flat())))
    }),
    { numRuns: 200 },
  )
  const verdict = checkHistory(Object.values(soundSources(seededRandom(3))).flat())
  expect(Object.values(verdict.invariants).map(({ state }) => state)).toEqual(invariantIds.map(() => 'held'))
})

interface Mutation {
  readonly breaks: InvariantId
  /** Changes the sources in place; `false` if this history has nothing to break. */
  readonly change: (sources: Sources, random: Random) => boolean
}

const all = <Op extends HistoryEntry['op']>(entries: readonly HistoryEntry[] | undefined, op: Op) =>
  (entries ?? []).filter((entry): entry is Extract<HistoryEntry, { op: Op }> => entry.op === op)

function replace(entries: HistoryEntry[] | undefined, old: HistoryEntry, ...by: readonly HistoryEntry[]): boolean {
  const index = entries?.indexOf(old) ?? -1
  entries?.splice(index, 1, ...by)
  return index >= 0
}

/** Replaces one entry of a kind, chosen by chance. */
const one =
  <Op extends HistoryEntry['op']>(
    source: string,
    op: Op,
    by: (entry: Extract<HistoryEntry, { op: Op }>) => readonly HistoryEntry[],
  ): Mutation['change'] =>
  (sources, random) => {
    const candidates = all(sources[source], op)
    if (candidates.length === 0) return false
    const entry = pick(random, candidates)
    return replace(sources[source], entry, ...by(entry))
  }

const answeredOk = (sources: Sources): Extract<HistoryEntry, { op: 'answer' }>[] =>
  all(sources['client'], 'answer').filter(({ outcome }) => outcome === 'ok')

const mutations: Readonly<Record<string, Mutation>> = {
  'an event is dropped on its way to the broker': {
    breaks: 'no-loss',
    change: (sources, random) => {
      const { event } = pick(random, all(sources['writer'], 'commit'))
      sources['broker'] = (sources['broker'] ?? []).filter((entry) => entry.op !== 'log' || entry.event !== event)
      return true
    },
  },
  'a message is made up': {
    breaks: 'no-ghost',
    change: one('broker', 'log', (entry) => [entry, { ...entry, event: 'ghost', version: entry.version + 1_000 }]),
  },
  'an event that was rolled back is published': { breaks: 'no-ghost', change: one('writer', 'commit', () => []) },
  'a message carries the id of another event': {
    breaks: 'no-ghost',
    change: one('broker', 'log', (entry) => [{ ...entry, version: entry.version + 1_000 }]),
  },
  'a version is given twice': {
    breaks: 'no-ghost',
    change: one('writer', 'commit', (entry) => [entry, { ...entry, event: 'twin' }]),
  },
  'two first occurrences are swapped': {
    breaks: 'first-occurrence-order',
    change: (sources, random) => {
      const logs = all(sources['broker'], 'log')
      const firsts = [...new Map(logs.toReversed().map((entry) => [entry.event, entry])).values()].toReversed()
      const later = pick(
        random,
        firsts.filter(({ version }) => version > 1),
      )
      const earlier = firsts.find(({ aggregate, version }) => aggregate === later.aggregate && version === later.version - 1)
      const broker = (sources['broker'] ?? []).filter((entry) => entry.op !== 'log' || entry.event !== earlier?.event)
      broker.splice(broker.indexOf(later) + 1, 0, ...(earlier === undefined ? [] : [earlier]))
      sources['broker'] = broker
      return true
    },
  },
  'an effect is doubled': { breaks: 'one-effect', change: one('catalog', 'apply', (entry) => [entry, entry]) },
  'the letter of what was applied stays dead': {
    breaks: 'one-fate',
    change: one('end', 'excuse', (entry) => [{ ...entry, isDead: true }]),
  },
  'an effect is dropped': { breaks: 'one-effect', change: one('catalog', 'apply', () => []) },
  'an observer sees an older version': {
    breaks: 'version-monotonic',
    change: one('observer', 'observe', (entry) => [entry, { ...entry, version: entry.version - 1 }]),
  },
  'an effect leaves an older version': {
    breaks: 'version-monotonic',
    change: (sources, random) => {
      const later = pick(
        random,
        all(sources['catalog'], 'apply').filter(({ version = 0 }) => version > 1),
      )
      return replace(sources['catalog'], later, { ...later, after: 0 })
    },
  },
  'a projection is not what the owner has': {
    breaks: 'projection-equals-owner',
    change: (sources, random) => {
      const projected = pick(
        random,
        all(sources['end'], 'state').filter(({ consumer }) => consumer !== undefined),
      )
      return replace(sources['end'], projected, { ...projected, value: 'different' })
    },
  },
  'a projection lacks a row': {
    breaks: 'projection-equals-owner',
    change: (sources, random) => {
      const projected = pick(
        random,
        all(sources['end'], 'state').filter(({ consumer }) => consumer !== undefined),
      )
      return replace(sources['end'], projected)
    },
  },
  'a read is stale': {
    breaks: 'read-your-writes',
    change: one('client', 'read', (entry) => [{ ...entry, atLeast: entry.served, served: entry.served - 1 }]),
  },
  'a request takes effect twice': { breaks: 'one-effect-per-command', change: one('end', 'effect', (entry) => [entry, entry]) },
  'one of two responses differs': {
    breaks: 'one-effect-per-command',
    change: (sources, random) => {
      const answers = answeredOk(sources)
      if (answers.length === 0) return false
      const answer = pick(random, answers)
      return replace(sources['client'], answer, answer, { ...answer, call: `${answer.call} again`, response: 'y' })
    },
  },
  'success is told of nothing': {
    breaks: 'one-effect-per-command',
    change: (sources, random) => {
      const answers = answeredOk(sources)
      if (answers.length === 0) return false
      const { request } = pick(random, answers)
      sources['end'] = (sources['end'] ?? []).filter((entry) => entry.op !== 'effect' || entry.request !== request)
      return true
    },
  },
  'an ambiguous outcome is called a failure': {
    breaks: 'ambiguity-is-info',
    change: (sources, random) => {
      const effects = all(sources['end'], 'effect')
      if (effects.length === 0) return false
      const { request, call = '' } = pick(random, effects)
      const others = (sources['client'] ?? []).filter((entry) => entry.op !== 'answer' || entry.call !== call)
      sources['client'] = [...others, { op: 'answer', source: 'client', call, request, outcome: 'fail' }]
      return true
    },
  },
  'an ambiguous outcome is called a failure, and replays hide it': {
    breaks: 'ambiguity-is-info',
    change: (sources, random) => {
      const effects = all(sources['end'], 'effect')
      if (effects.length === 0) return false
      const effect = pick(random, effects)
      const { request, call = '', source: _source, ...what } = effect
      const replays = answeredOk(sources).filter((entry) => entry.request === request && entry.isReplay === true)
      const others = (sources['client'] ?? []).filter((entry) => !('request' in entry) || entry.request !== request)
      sources['client'] = [...others, { op: 'answer', source: 'client', call, request, outcome: 'fail' }, ...replays]
      return replays.length > 0 && replace(sources['end'], effect, { ...what, request })
    },
  },
  'a repeat is told failure after success': {
    breaks: 'ambiguity-is-info',
    change: (sources, random) => {
      const answers = answeredOk(sources)
      if (answers.length === 0) return false
      const { request } = pick(random, answers)
      const again = { source: 'client', call: `${request} again`, request } as const
      sources['client']?.push({ op: 'invoke', ...again, payload: 'p' }, { op: 'answer', ...again, outcome: 'fail' })
      return true
    },
  },
  'rows are left': { breaks: 'liveness', change: one('end', 'rest', (entry) => [{ ...entry, left: { rows: 2 } }]) },
  'recovery is slow': { breaks: 'liveness', change: one('end', 'rest', (entry) => [{ ...entry, tookMs: 11 }]) },
}

test.each(Object.entries(mutations))('it is always found out when %s', (_, { breaks, change }) => {
  let changed = 0
  fc.assert(
    fc.property(seeds, seeds, (seed, other) => {
      const random = seededRandom(seed)
      const sources = soundSources(random)
      if (!change(sources, random)) return
      changed += 1
      const verdict = checkHistory(merged(sources, seededRandom(other)))
      expect(verdict.invariants[breaks].state).toBe('violated')
      for (const { text, evidence } of verdict.violations.filter((each) => each.invariant === breaks)) {
        // The evidence is a history of its own, and a short one: it shows the same violation.
        const again = checkHistory(evidence.map(({ entry }) => entry))
        expect(again.violations.map((each) => each.text)).toContain(text)
        expect(evidence.length).toBeLessThanOrEqual(5)
      }
    }),
    { numRuns: 100 },
  )
  expect(changed).toBeGreaterThan(20)
})

test('every invariant has mutations that break it', () => {
  expect(new Set(Object.values(mutations).map(({ breaks }) => breaks))).toEqual(new Set(invariantIds))
})
