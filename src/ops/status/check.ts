/**
 * Whether a status is as it should be: pure, so that a program, a page and an alert decide alike.
 */
import { defaults } from '../../core/defaults.ts'
import { atLeast, resolve } from '../../core/options.ts'
import type { ConsumerReport, Status } from './status.ts'

export interface StatusLimits {
  /** The age of the oldest event that could be published, and of the oldest stored message that could be applied. @default 30_000 */
  readonly maxLagMs?: number
  /** Events that wait in the outbox, in every state. @default 100_000 */
  readonly maxBacklog?: number
  /** Events that gave up on the broker. @default 0 */
  readonly maxParked?: number
  /** Dead letters of all consumers. @default 0 */
  readonly maxDead?: number
  /** How long a message may wait for a version that does not come. @default 60_000 */
  readonly maxGapMs?: number
  /** How late the clean-up of command markers may be. @default 60_000 */
  readonly maxCleanupLagMs?: number
}

export type StatusProblem = 'lag' | 'backlog' | 'parked' | 'dead' | 'gap' | 'cleanup-lag'

export interface StatusFinding {
  readonly problem: StatusProblem
  readonly service: string
  /** What is too much: milliseconds or a count. */
  readonly value: number
  readonly limit: number
  readonly text: string
}

/** Everything that is over its limit; empty if nothing is. */
export function checkStatus(status: Status, limits: StatusLimits = {}): readonly StatusFinding[] {
  const { maxLagMs, maxBacklog, maxParked, maxDead, maxGapMs, maxCleanupLagMs } = resolveLimits(limits)
  const { outbox, consumers, commands, service } = status
  const findings: StatusFinding[] = []
  const check = (problem: StatusProblem, [value, limit]: readonly [number, number], text: string): void => {
    if (value > limit) findings.push({ problem, service, value, limit, text: `${service}: ${text}` })
  }
  check('lag', [outbox.lagMs, maxLagMs], `the oldest event to publish is ${ms(outbox.lagMs)} old; ${ms(maxLagMs)} is allowed`)
  const waiting = outbox.due + outbox.retrying + outbox.held + outbox.parked
  check('backlog', [waiting, maxBacklog], `${waiting} events wait in the outbox; ${maxBacklog} are allowed`)
  check('parked', [outbox.parked, maxParked], `${outbox.parked} events are parked; ${maxParked} are allowed`)
  // What waits for the operator who paused a consumer is not late.
  for (const { consumer, stored, waiting: behind } of consumers.filter(({ paused }) => paused === undefined)) {
    check(
      'lag',
      [stored.lagMs, maxLagMs],
      `${consumer} has a stored message of ${ms(stored.lagMs)} to apply; ${ms(maxLagMs)} is allowed`,
    )
    check(
      'gap',
      [behind.oldestMs, maxGapMs],
      `${consumer} has waited for a version for ${ms(behind.oldestMs)}; ${ms(maxGapMs)} is allowed`,
    )
  }
  const dead = consumers.reduce((sum, each) => sum + deadOf(each), 0)
  check('dead', [dead, maxDead], `${dead} dead letters; ${maxDead} are allowed`)
  const late = commands.cleanupLagMs
  check('cleanup-lag', [late, maxCleanupLagMs], `the clean-up of markers is ${ms(late)} late; ${ms(maxCleanupLagMs)} is allowed`)
  return findings
}

/** The dead letters of one consumer that nobody has settled. */
export function deadOf({ deadLetters }: ConsumerReport): number {
  return deadLetters.reduce((sum, { count }) => sum + count, 0)
}

function ms(value: number): string {
  return `${Math.round(value)} ms`
}

function resolveLimits(limits: StatusLimits): Required<StatusLimits> {
  const some = atLeast(0)
  return resolve<Required<StatusLimits>>('status', defaults.statusCheck, limits, {
    maxLagMs: some,
    maxBacklog: some,
    maxParked: some,
    maxDead: some,
    maxGapMs: some,
    maxCleanupLagMs: some,
  })
}
