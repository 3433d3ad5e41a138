import { expect, test } from 'vitest'
import { systemRandom } from '../../core/service/random.ts'
import { Forked, ItemFailure, type Item, type Refusal } from '../model/batch-item.ts'
import { discard, retryAfter } from '../model/handler.ts'
import type { DeadReason } from '../model/received-event.ts'
import {
  decideAtOnce,
  decideCounted,
  decideUntried,
  effectOnAggregate,
  restAfterCrashes,
  type FailureDecision,
  type FailureSettings,
} from './failure-policy.ts'

const settings: FailureSettings = {
  maxAttempts: 3,
  onPoison: 'dead-letter',
  backoff: { firstMs: 100, maxMs: 60_000, jitter: 'none' },
  random: systemRandom,
}
const outageBackoff = (): number => 777

function item({ refusal, isLetter = false }: { readonly refusal?: Refusal; readonly isLetter?: boolean } = {}): Item {
  const origin = isLetter ? { kind: 'dead', letterId: '1' } : { kind: 'waiting' }
  return { event: { id: 'a1', version: 7n }, origin, refusal } as unknown as Item
}

const atOnce = (of: Item, cause: unknown): FailureDecision | undefined =>
  decideAtOnce({ item: of, error: new ItemFailure(of, cause) }, outageBackoff)
const counted = (of: Item, cause: unknown, attempts: number | undefined, onPoison = settings.onPoison): FailureDecision =>
  decideCounted({ item: of, error: new ItemFailure(of, cause), attempts }, { ...settings, onPoison }, outageBackoff)

const broken = new Error('broken')
const lockTimeout = Object.assign(new Error('locked'), { code: '55P03' })

test('an outage of the data store, and a lock that our own statement met, are not counted', () => {
  const away = item({ refusal: { reason: 'failed', error: 'store away', passing: 'outage' } })
  expect(atOnce(away, broken)).toEqual({ kind: 'not-counted', delayMs: 777, error: 'store away' })
  expect(decideAtOnce({ item: item(), error: lockTimeout }, outageBackoff)).toMatchObject({ kind: 'not-counted', delayMs: 777 })
  expect(atOnce(item(), lockTimeout)).toBeUndefined()
})

test('a discarded or forked event dies at once, and a redriven letter that fails is dead again', () => {
  expect(atOnce(item(), discard('negative'))).toEqual({
    kind: 'dead-letter',
    reason: 'discarded',
    error: 'negative',
    attempts: 1,
  })
  expect(atOnce(item(), new Forked('twice'))).toMatchObject({ kind: 'dead-letter', reason: 'forked' })
  expect(atOnce(item({ isLetter: true }), discard('negative'))).toMatchObject({ kind: 'dead-letter', reason: 'discarded' })
  expect(atOnce(item({ isLetter: true }), broken)).toEqual({ kind: 'dead-again', reason: 'failed', error: 'broken' })
  expect(atOnce(item({ isLetter: true }), new Forked('twice'))).toMatchObject({ kind: 'dead-again' })
  expect(atOnce(item(), broken)).toBeUndefined()
})

test('a counted failure returns with a growing delay, and is a dead letter after maxAttempts', () => {
  expect([1, 2, 3].map((attempts) => counted(item(), broken, attempts))).toEqual([
    { kind: 'retry', attempts: 1, delayMs: 100, error: 'broken' },
    { kind: 'retry', attempts: 2, delayMs: 200, error: 'broken' },
    { kind: 'dead-letter', reason: 'failed', attempts: 3, error: 'broken' },
  ])
  expect(counted(item(), retryAfter(30_000), 1)).toMatchObject({ kind: 'retry', delayMs: 30_000 })
  expect(counted(item(), broken, undefined)).toEqual({ kind: 'not-counted', delayMs: 777, error: 'broken' })
})

test('unreadable data is a dead letter at its first attempt, unless its failure may pass', () => {
  const refused = (passing?: 'failure'): Item => item({ refusal: { reason: 'invalid', error: 'no', passing } })
  expect(counted(refused(), new Error('no'), 1)).toEqual({ kind: 'dead-letter', reason: 'invalid', error: 'no', attempts: 1 })
  expect(counted(refused('failure'), new Error('no'), 1)).toMatchObject({ kind: 'retry', attempts: 1 })
})

test('onPoison: stop gives up no event, and no handler shortens its last delay', () => {
  expect(counted(item(), broken, 3, 'stop')).toEqual({ kind: 'stopped', attempts: 3, delayMs: 60_000, error: 'broken' })
  expect(counted(item(), retryAfter(1), 3, 'stop')).toMatchObject({ kind: 'stopped', delayMs: 60_000 })
})

test('an event that jumps or ends processes is not tried, and its rest doubles with each crash', () => {
  const limits = { maxCrashes: 3, maxVersionJump: 10, backoff: settings.backoff }
  const untried = (isJump: boolean, crashes: number) => decideUntried({ item: item(), isJump, crashes }, limits)
  expect(untried(false, 2)).toBeUndefined()
  expect(untried(false, 3)).toMatchObject({ reason: 'crashed', attempts: 3 })
  expect(untried(true, 0)).toMatchObject({ reason: 'version_jump', attempts: 1 })
  expect([3, 4, 5, 20].map((crashes) => restAfterCrashes(crashes, limits))).toEqual([60_000, 120_000, 240_000, 3_600_000])
})

test('a dead letter holds or passes its aggregate, and touches none that is not believed', () => {
  const effects = (onDead: 'hold' | 'pass', ...reasons: readonly DeadReason[]): readonly string[] =>
    reasons.map((reason) => effectOnAggregate({ reason }, { onDead }))
  expect(effects('hold', 'failed', 'crashed', 'forked', 'discarded')).toEqual(['hold', 'hold', 'hold', 'pass'])
  expect(effects('pass', 'failed', 'crashed', 'forked', 'discarded')).toEqual(['pass', 'pass', 'hold', 'pass'])
  for (const onDead of ['hold', 'pass'] as const)
    expect(effects(onDead, 'version_jump', 'unknown_stream')).toEqual(['none', 'none'])
})
