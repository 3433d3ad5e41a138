/**
 * The relay stress over Google's client: relay processes publish to a Pub/Sub server, and two logs are checked, each by the same
 * rules. What the server stored is held against what the database committed, and what a subscriber was handed against what the
 * server stored.
 */
import { checkHistory, type Verdict } from '../../src/testing/history/checker.ts'
import type { Commit, Log } from '../../src/testing/history/entry.ts'
import { stress, type StressOptions, type StressReport } from '../outbox/stress/stress.ts'
import { startStressBroker, type BadDay, type PubsubStressBroker } from './stress-broker.ts'

/** Every fault that the server knows. */
export const everyFault: readonly BadDay[] = [
  ['duplicate', 0.3],
  ['delay', 0.3],
  ['dropAcks', 0.2],
  ['reorder', 0.5],
  ['publishError', 0.2],
  ['refuse', 0.2],
  ['cutStreams', 0.5],
]

export interface PubsubStressReport extends StressReport {
  /** Between what the server stored and what the subscriber got. */
  readonly deliveryViolations: readonly string[]
  /** Messages that the subscriber got more often than their first time. */
  readonly redelivered: number
}

export async function stressOverPubsub(
  options: Omit<StressOptions, 'startBroker' | 'leaseMs'> & { readonly badDays: readonly BadDay[] },
): Promise<PubsubStressReport> {
  const { badDays, seed, events } = options
  const brokers: PubsubStressBroker[] = []
  const report = await stress({
    ...options,
    leaseMs: 1_200,
    startBroker: async (brokerOptions) => {
      const broker = await startStressBroker({ ...brokerOptions, seed, events, badDays })
      brokers.push(broker)
      return broker
    },
  })
  const [broker] = brokers
  const { violations, counts } = judgeDelivery(broker?.landed ?? [], broker?.delivered ?? [])
  return {
    ...report,
    deliveryViolations: violations.map(({ text }) => text),
    redelivered: counts.duplicates - report.duplicates,
  }
}

/** What the server stored stands for what was committed, and what the subscriber got for what arrived. */
function judgeDelivery(landed: readonly Log[], delivered: readonly Log[]): Verdict {
  const commits = landed.map(({ event, aggregate, version }): Commit => ({ op: 'commit', event, aggregate, version }))
  return checkHistory([...commits, ...delivered, { op: 'rest' }])
}
