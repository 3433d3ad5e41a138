/**
 * Scripts of the consumer's statements: few events, few aggregates, few tokens, so that sessions meet each other.
 */
import fc from 'fast-check'
import { clampMessageRetries } from '../../src/consumer/tables/leased-work.sql.ts'
import {
  chargeAttempt,
  forgetAttempts,
  forgetSeen,
  readAttempts,
  recordSeen,
  releaseAttempts,
  startAttempts,
} from '../../src/consumer/tables/dead-letter.sql.ts'
import { claim, claimRows, claimStored, unrecord } from '../../src/consumer/tables/claim.sql.ts'
import {
  countWaiting,
  movePositions,
  readReleased,
  readWaiting,
  registerConsumer,
  removeStored,
  restStored,
  storeWaiting,
  type Scope,
} from '../../src/consumer/tables/inbox.sql.ts'
import { makeLanes } from '../../src/consumer/tables/stored.sql.ts'
import { scriptsOf, weighted, type ScriptStep } from './outbox-script.ts'
import { aggregates, allTypes, events, sequentialTypes, standing } from './script-events.ts'
import type { Step } from './sides.ts'
import { storedSteps } from './stored-script.ts'

const never = 600_000

export function inboxScripts(scope: Scope, sessions: number): fc.Arbitrary<readonly ScriptStep[]> {
  return scriptsOf(fc.oneof(...directSteps(scope), ...storedSteps(scope)), sessions)
}

function directSteps(scope: Scope): { readonly arbitrary: fc.Arbitrary<Step>; readonly weight: number }[] {
  const items = fc.subarray([...events], { minLength: 1, maxLength: 3 })
  const ids = items.map((some) => some.map(({ event }) => event.id))
  const delayMs = fc.constantFrom(0, never)
  const bounds = fc.record({ batchSize: fc.integer({ min: 1, max: 3 }), batchBytes: fc.constantFrom(1, 1_000) })
  const taken = fc.constantFrom(undefined, { from: 1n, to: 1n }, { from: 1n, to: 2n }, { from: 2n, to: 2n })
  const change = fc.record({ item: fc.constantFrom(...events), release: fc.boolean(), taken })
  return [
    ...weighted(
      4,
      items.map(
        (some): Step =>
          () =>
            claim(scope, some, 1),
      ),
    ),
    ...weighted(
      2,
      items.map(
        (some): Step =>
          () =>
            claimRows(scope, some, 1),
      ),
    ),
    ...weighted(
      1,
      items.map(
        (some): Step =>
          () =>
            claimStored(scope, some),
      ),
    ),
    ...weighted(
      1,
      items.map(
        (some): Step =>
          () =>
            unrecord(scope, some),
      ),
    ),
    ...weighted(
      1,
      ids.map(
        (some): Step =>
          () =>
            recordSeen(scope, { eventId: some[0] ?? '', source: 'video' }),
      ),
    ),
    ...weighted(
      1,
      ids.map(
        (some): Step =>
          () =>
            forgetSeen(scope, some[0] ?? ''),
      ),
    ),
    ...weighted(
      2,
      change.map(
        ({ item: { event }, release, taken: known }): Step =>
          () =>
            movePositions(scope, [{ ...event, taken: known, release }]),
      ),
    ),
    ...weighted(
      3,
      items.map(
        (some): Step =>
          () =>
            storeWaiting(scope, some),
      ),
    ),
    ...weighted(
      2,
      bounds.map(
        (some): Step =>
          () =>
            readWaiting(scope, aggregates, some),
      ),
    ),
    ...weighted(
      2,
      fc.tuple(fc.constantFrom('first', 'any'), bounds, fc.subarray([...allTypes])).map(
        ([deltaStart, some, types]): Step =>
          () =>
            readReleased(scope, { types, sequentialTypes, standing, known: [], deltaStart }, some),
      ),
    ),
    ...weighted(
      2,
      ids.map(
        (some): Step =>
          () =>
            removeStored(scope, some),
      ),
    ),
    ...weighted(
      1,
      fc.tuple(fc.constantFrom(...events), delayMs).map(
        ([one, ms]): Step =>
          () =>
            restStored(scope, one, { delayMs: ms, error: 'e' }),
      ),
    ),
    ...weighted(
      1,
      ids.map(
        (some): Step =>
          () =>
            startAttempts(scope, some),
      ),
    ),
    ...weighted(
      1,
      ids.map(
        (some): Step =>
          () =>
            readAttempts(scope, some),
      ),
    ),
    ...weighted(
      1,
      ids.map(
        (some): Step =>
          () =>
            chargeAttempt(scope, some[0] ?? '', 'e'),
      ),
    ),
    ...weighted(
      1,
      ids.map(
        (some): Step =>
          () =>
            releaseAttempts(scope, some),
      ),
    ),
    ...weighted(
      1,
      ids.map(
        (some): Step =>
          () =>
            forgetAttempts(scope, some),
      ),
    ),
    ...weighted(
      1,
      fc.constantFrom<Step>(
        () => registerConsumer(scope),
        () => countWaiting(scope),
        () => clampMessageRetries(scope),
        () => makeLanes(scope),
      ),
    ),
  ]
}
