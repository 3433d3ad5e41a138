/**
 * Statements of stored mode for scripts. Leases and rests are over at once or never, so that no clock decides.
 */
import fc from 'fast-check'
import type { Scope } from '../../src/consumer/inbox.sql.ts'
import {
  fenceLanes,
  giveLanes,
  readReceived,
  removeReceived,
  renewLanes,
  restReceived,
  setAside,
  storeReceived,
  takeLanes,
} from '../../src/consumer/stored.sql.ts'
import { businessKeyId } from '../../src/core/id.ts'
import { weighted } from './outbox-script.ts'
import { events } from './script-events.ts'
import type { Step } from './sides.ts'

const never = 600_000
const everyLane = Array.from({ length: 64 }, (_, lane) => lane)

export function storedSteps(scope: Scope): { readonly arbitrary: fc.Arbitrary<Step>; readonly weight: number }[] {
  const items = fc.subarray([...events], { minLength: 1, maxLength: 3 })
  const token = fc.constantFrom(...[1, 2].map((n) => businessKeyId('token', n)))
  const leaseMs = fc.constantFrom(0, never)
  const mask = fc.array(fc.boolean(), { minLength: 4, maxLength: 4 })
  const delayMs = fc.constantFrom(0, never)
  const lease = { lanes: everyLane, worker: 'w', count: 64, from: 0, batchBytes: 1_000_000 }
  return [
    ...weighted(
      3,
      items.map(
        (some): Step =>
          () =>
            storeReceived(scope, some),
      ),
    ),
    ...weighted(
      2,
      fc.tuple(token, leaseMs).map(
        ([each, ms]): Step =>
          () =>
            takeLanes(scope, { ...lease, token: each, leaseMs: ms }),
      ),
    ),
    ...weighted(
      1,
      token.map(
        (each): Step =>
          () =>
            fenceLanes(scope, { ...lease, token: each }),
      ),
    ),
    ...weighted(
      1,
      fc.tuple(token, leaseMs).map(
        ([each, ms]): Step =>
          () =>
            renewLanes(scope, { ...lease, token: each, leaseMs: ms }),
      ),
    ),
    ...weighted(
      1,
      token.map(
        (each): Step =>
          () =>
            giveLanes(scope, { ...lease, token: each }),
      ),
    ),
    ...weighted(
      3,
      fc.tuple(token, fc.constantFrom(1, 10)).map(
        ([each, batchSize]): Step =>
          () =>
            readReceived(scope, { ...lease, token: each, batchSize }),
      ),
    ),
    ...weighted(
      2,
      mask.map(
        (picked): Step =>
          (read) =>
            removeReceived(scope, placesOf(read, picked)),
      ),
    ),
    ...weighted(
      1,
      mask.map(
        (picked): Step =>
          (read) =>
            setAside(scope, placesOf(read, picked)),
      ),
    ),
    ...weighted(
      2,
      fc.tuple(mask, delayMs).map(
        ([picked, ms]): Step =>
          (read) =>
            restReceived(scope, placesOf(read, picked)[0] ?? { lane: 0, seq: '0' }, { delayMs: ms, error: 'e' }),
      ),
    ),
  ]
}

function placesOf(read: readonly Record<string, unknown>[], picked: readonly boolean[]): { lane: number; seq: string }[] {
  return read
    .filter((row, i) => row['lane'] !== undefined && picked[i % picked.length] === true)
    .map((row) => ({ lane: Number(row['lane']), seq: row['seq'] as string }))
}
