/**
 * Scripts of the pipeline's statements: few requests and few aggregates, which meet each other.
 */
import fc from 'fast-check'
import {
  claimCommand,
  lockAggregates,
  selectMarker,
  selectVersions,
  updateMarker,
  type CommandTables,
} from '../../src/command/model/command.sql.ts'
import { businessKeyId } from '../../src/core/event/id.ts'
import { addEvent, type OutboxTables } from '../../src/outbox/tables/outbox.sql.ts'
import { encoded, scriptOf, scriptsOf, weighted, type ScriptStep } from './outbox-script.ts'
import type { Step } from './sides.ts'

const marker = { command: 'Deposit', fingerprint: 'ff', lockTimeoutMs: 0 }

export interface PipelineTables {
  readonly tables: CommandTables
  readonly outbox: OutboxTables
}

export function commandScripts({ tables, outbox }: PipelineTables, sessions: number): fc.Arbitrary<readonly ScriptStep[]> {
  const some = fc.subarray([
    { type: 'account', id: 'a' },
    { type: 'account', id: 'b' },
  ])
  const key = fc.constantFrom('r0', 'r1').map((requestId) => ({ principal: 'p', requestId }))
  const answer = fc.record({ rejected: fc.boolean(), response: fc.constantFrom('1', '2'), token: fc.constantFrom('t', null) })
  const steps = fc.oneof(
    ...weighted(
      4,
      fc.tuple(key, some).map(
        ([each, locked]): Step =>
          () =>
            claimCommand(tables, { ...each, ...marker }, locked),
      ),
    ),
    ...weighted(
      2,
      key.map(
        (each): Step =>
          () =>
            selectMarker(tables, each),
      ),
    ),
    ...weighted(
      2,
      fc.tuple(key, answer).map(
        ([each, said]): Step =>
          () =>
            updateMarker(tables, each, said),
      ),
    ),
    ...weighted(
      2,
      some.map(
        (locked): Step =>
          () =>
            lockAggregates(tables, locked),
      ),
    ),
    ...weighted(
      1,
      some.map(
        (read): Step =>
          () =>
            selectVersions(tables, read),
      ),
    ),
    ...weighted(
      1,
      fc.tuple(fc.uuid(), fc.constantFrom(1n, 2n)).map(([id, version]) => add(outbox, id, version)),
    ),
    ...weighted(2, fc.constant<Step>('status')),
  )
  return scriptsOf(steps, sessions)
}

/** The session whose `status` is about the first one. */
const asker = 2

/** Rejections at work: what was rejected is rolled back with its locks, also after a failure, and then its marker is kept. */
export function commandExamples({ tables, outbox }: PipelineTables): readonly (readonly ScriptStep[])[] {
  const [first, second] = [
    { type: 'account', id: 'a' },
    { type: 'account', id: 'b' },
  ] as const
  const key = { principal: 'p', requestId: 'r0' }
  const claim: Step = () => claimCommand(tables, { ...key, ...marker }, [first])
  const find: Step = () => selectMarker(tables, key)
  const keep: Step = () => updateMarker(tables, key, { rejected: true, response: '1', token: null })
  const lock =
    (one: typeof first | typeof second): Step =>
    () =>
      lockAggregates(tables, [one])
  const [initial, next, wrong] = [1, 2, 7].map((version) => add(outbox, businessKeyId('event', version), BigInt(version))) as [
    Step,
    Step,
    Step,
  ]
  const begun = [
    [1, initial],
    [1, lock(second)],
    [0, 'begin'],
    [0, claim],
  ] as const
  const kept = [
    [0, 'rollback'],
    [1, lock(first)],
    [0, 'begin'],
    [0, claim],
    [0, keep],
    [asker, 'status'],
    [0, 'commit'],
    [asker, 'status'],
    [1, find],
  ] as const
  return [
    scriptOf(...begun, [0, lock(second)], [0, next], [1, lock(second)], ...kept),
    scriptOf(...begun, [0, lock(second)], [0, wrong], [0, find], [1, lock(second)], [asker, 'status'], ...kept),
    scriptOf(...begun, [0, wrong], [0, 'commit'], [asker, 'status'], [1, find]),
  ]
}

/** An event of the first account, which must have this version. */
function add(outbox: OutboxTables, id: string, version: bigint): Step {
  return () => addEvent(outbox, encoded({ aggregate: 'a', id, aggregateType: 'account', version }))
}
