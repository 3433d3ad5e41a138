import { expect, test } from 'vitest'
import { checkStatus } from './check.ts'
import type { ConsumerReport, Status } from './status.ts'

const calm: Status = {
  service: 'films',
  schema: 'waybill',
  at: '2026-01-01T00:00:00.000Z',
  outbox: {
    dispatching: true,
    due: 10,
    retrying: 0,
    held: 0,
    parked: 0,
    estimated: false,
    lagMs: 5,
    oldestAgeMs: 5,
    highestAttempts: 0,
    publishDelay: { sample: 0, p50Ms: undefined, p95Ms: undefined, lastMs: undefined },
    lanes: { total: 64, owned: 64, unowned: 0, expiring: 0 },
    relays: [],
    heldKeys: [],
    pauses: [],
  },
  consumers: [],
  commands: { markers: 0, cleanupLagMs: 0 },
  sizes: {},
}
const consumer: ConsumerReport = {
  consumer: 'catalog',
  generation: 1,
  rebuilding: false,
  complete: true,
  paused: undefined,
  delay: { sample: 0, p50Ms: undefined, p95Ms: undefined, lastMs: undefined },
  waiting: { messages: 0, aggregates: 0, held: 0, oldestMs: 0 },
  stored: { due: 0, retrying: 0, held: 0, estimated: false, lagMs: 0 },
  instances: { running: 1, versions: 1 },
  atRest: [],
  deadLetters: [],
  refused: [],
  heldAggregates: [],
}

test('what is within its limits is not found, exactly at the limit neither', () => {
  expect(checkStatus(calm)).toEqual([])
  expect(checkStatus(calm, { maxBacklog: 10, maxLagMs: 5 })).toEqual([])
  expect(checkStatus(calm, { maxBacklog: 9 })).toMatchObject([{ problem: 'backlog', value: 10, limit: 9, service: 'films' }])
})

test('each thing that is over its limit is found, with a sentence', () => {
  const bad: Status = {
    ...calm,
    outbox: { ...calm.outbox, due: 200_000, parked: 1, lagMs: 31_000 },
    consumers: [
      {
        ...consumer,
        refused: [],
        deadLetters: [
          { reason: 'failed', count: 2 },
          { reason: 'invalid', count: 1 },
        ],
        waiting: { messages: 1, aggregates: 1, held: 0, oldestMs: 61_000 },
        stored: { ...consumer.stored, lagMs: 40_000 },
      },
    ],
    commands: { markers: 5, cleanupLagMs: 90_000 },
  }
  const found = checkStatus(bad)
  expect(found.map(({ problem }) => problem)).toEqual(['lag', 'backlog', 'parked', 'lag', 'gap', 'dead', 'cleanup-lag'])
  expect(found.map(({ text }) => text)).toContain('films: 3 dead letters; 0 are allowed')
  const limits = { maxLagMs: 60_000, maxBacklog: 1e6, maxParked: 1, maxDead: 3, maxGapMs: 1e6, maxCleanupLagMs: 1e6 }
  expect(checkStatus(bad, limits)).toEqual([])
})

test('what waits for the operator who paused a consumer is neither lag nor a gap; its dead letters count', () => {
  const late: ConsumerReport = {
    ...consumer,
    waiting: { messages: 1, aggregates: 1, held: 0, oldestMs: 61_000 },
    stored: { ...consumer.stored, due: 1, lagMs: 31_000 },
    deadLetters: [{ reason: 'failed', count: 1 }],
  }
  const problems = (each: ConsumerReport): string[] => checkStatus({ ...calm, consumers: [each] }).map(({ problem }) => problem)
  expect(problems(late)).toEqual(['lag', 'gap', 'dead'])
  expect(problems({ ...late, paused: { by: 'ada', at: '2026-01-01T00:00:00.000Z' } })).toEqual(['dead'])
})

test('a limit that does not exist is refused', () => {
  expect(() => checkStatus(calm, { maxlag: 3 } as never)).toThrow('Did you mean "maxLagMs"?')
})
