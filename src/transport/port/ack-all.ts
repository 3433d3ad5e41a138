/**
 * Acknowledges many deliveries, together where their transport can.
 */
import type { AckOutcome, Delivery } from './transport.ts'

/** What became of them, in any order. */
export async function ackAll(deliveries: readonly Delivery[]): Promise<readonly AckOutcome[]> {
  const groups = Map.groupBy(deliveries, ({ acker }) => acker)
  const outcomes = await Promise.all(
    [...groups].map(([acker, group]) => acker?.ackAll(group) ?? Promise.all(group.map((delivery) => delivery.ack()))),
  )
  return outcomes.flat()
}
