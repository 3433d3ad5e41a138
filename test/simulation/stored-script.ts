/**
 * Statements of stored mode for scripts. Leases and rests are over at once or never, so that no clock decides.
 */
import fc from 'fast-check'
import type { Scope } from '../../src/consumer/tables/inbox.sql.ts'
import {
  fenceLanes,
  giveLanes,
  lockLane,
  readReceived,
  removeReceived,
  renewLanes,
  restReceived,
  setAside,
  storeReceived,
  takeLanes,
  type StoredPlace,
} from '../../src/consumer/tables/stored.sql.ts'
import { businessKeyId } from '../../src/core/event/id.ts'
import { scriptOf, weighted, type ScriptStep } from './outbox-script.ts'
import { events } from './script-events.ts'
import type { Step } from './sides.ts'
import { keyOf, laneOf } from './store/sql-text.ts'

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
      1,
      mask.map(
        (picked): Step =>
          (read) =>
            lockLane(scope, placesOf(read, picked)[0]?.lane ?? 0),
      ),
    ),
    ...weighted(
      2,
      fc.tuple(mask, delayMs).map(
        ([picked, ms]): Step =>
          (read) =>
            restReceived(scope, placesOf(read, picked)[0] ?? { lane: 0, seq: '0', state: 0 }, { delayMs: ms, error: 'e' }),
      ),
    ),
  ]
}

type Played = readonly (readonly [session: number, step: Step])[]

/**
 * A lane is not taken from a lease that is much longer than one's own. A head that failed gives way to nobody, one that has not to what
 * fails before it. And a rest that is set while another works in the lane: who has locked the lane waits for it, or it for him, and
 * nothing of the line is left without a head.
 */
export function storedExamples(scope: Scope): readonly (readonly ScriptStep[])[] {
  const lease = { token: businessKeyId('token', 1), lanes: everyLane, worker: 'w', count: 64, from: 0, batchBytes: 1_000_000 }
  const line = events.filter(({ event }) => event.aggregateType === 'video')
  const store: Step = () => storeReceived(scope, line)
  const take: Step = () => takeLanes(scope, { ...lease, leaseMs: never })
  const takeShort: Step = () => takeLanes(scope, { ...lease, token: businessKeyId('token', 2), leaseMs: 1_000 })
  const fence: Step = () => fenceLanes(scope, lease)
  const read: Step = () => readReceived(scope, { ...lease, batchSize: 10 })
  const lane = laneOf(keyOf('video', 'a'), everyLane.length)
  const lock: Step = () => lockLane(scope, lane)
  // As it was stored, whatever became of it since.
  const placeOf = (seq: number): StoredPlace => ({ lane, seq: String(seq), state: 0 })
  const remove =
    (seq: number): Step =>
    () =>
      removeReceived(scope, [placeOf(seq)])
  const aside: Step = () => setAside(scope, [placeOf(1)])
  const rest =
    (seq: number, delayMs: number): Step =>
    () =>
      restReceived(scope, placeOf(seq), { delayMs, error: 'e' })
  // The first of the line is the head, and has failed.
  const begun = [
    [0, store],
    [0, take],
    [0, rest(1, 0)],
    [0, read],
  ] as const
  /** One is at work in the lane when the other comes to let `seq` rest. */
  const during = (leave: Step, seq: number): Played => [
    [0, 'begin'],
    [0, fence],
    [1, 'begin'],
    [1, lock],
    [0, leave],
    [0, 'commit'],
    [1, rest(seq, never)],
    [1, 'commit'],
    [0, read],
  ]
  /** The other way round. */
  const before = (leave: Step, seq: number): Played => [
    [1, 'begin'],
    [1, lock],
    [1, rest(seq, never)],
    [0, 'begin'],
    [0, fence],
    [1, 'commit'],
    [0, leave],
    [0, 'commit'],
    [0, read],
  ]
  return [
    scriptOf([0, store], [0, take], [1, takeShort], [0, fence]),
    scriptOf(...begun, [0, rest(2, never)], [0, read]),
    scriptOf(...begun, [0, remove(1)], [0, read], [0, rest(3, never)], [0, rest(2, 0)], [0, read]),
    scriptOf(...begun, [0, remove(1)], [0, read], ...during(remove(3), 3)),
    ...[remove(1), aside].flatMap((leave) =>
      [1, 2].flatMap((seq) => [
        scriptOf(...begun, ...during(leave, seq)),
        scriptOf(...begun, ...before(leave, seq)),
        scriptOf(...begun, [1, 'begin'], [1, rest(seq, never)], [0, leave], [1, 'commit'], [0, read]),
      ]),
    ),
  ]
}

function placesOf(read: readonly Record<string, unknown>[], picked: readonly boolean[]): StoredPlace[] {
  return read
    .filter((row, i) => row['lane'] !== undefined && picked[i % picked.length] === true)
    .map((row) => ({ lane: Number(row['lane']), seq: row['seq'] as string, state: Number(row['state']) }))
}
