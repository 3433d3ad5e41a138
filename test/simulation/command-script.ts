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
} from '../../src/command/command.sql.ts'
import { scriptsOf, weighted, type ScriptStep } from './outbox-script.ts'
import type { Step } from './sides.ts'

export function commandScripts(tables: CommandTables, sessions: number): fc.Arbitrary<readonly ScriptStep[]> {
  const some = fc.subarray([
    { type: 'account', id: 'a' },
    { type: 'account', id: 'b' },
  ])
  const key = fc.constantFrom('r0', 'r1').map((requestId) => ({ principal: 'p', requestId }))
  const answer = fc.record({ rejected: fc.boolean(), response: fc.constantFrom('1', '2'), token: fc.constantFrom('t', null) })
  const marker = { command: 'Deposit', fingerprint: 'ff', lockTimeoutMs: 0 }
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
  )
  return scriptsOf(steps, sessions)
}
