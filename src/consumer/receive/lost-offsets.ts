/**
 * Tells of a broker that has forgotten how far a consumer was, where that does harm.
 *
 * Kafka forgets the offsets of a group that nobody was in for a while (offsets.retention.minutes), and the topic is then read from
 * its beginning. The inbox recognises what it remembers; what the consumer handled before that is handled again. Nothing here can
 * tell such an event from a new one, so it is said aloud. A consumer that is new, or no older than the memory of its inbox, is
 * harmed by nothing and not told. Nobody waits for the look: what is delivered meanwhile is too young to pass for what was read before.
 */
import { WaybillError } from '../../core/errors.ts'
import { first } from '../../postgres/query/database.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import { selectForgotten } from '../tables/operate/retention.sql.ts'

/** Makes the function that looks, once for each partition of a topic unless that fails, and tells. It never rejects. */
export function createForgottenOffsets(
  { db, name, streams, signals }: Pick<ConsumerSettings, 'db' | 'name' | 'streams' | 'signals'>,
  scope: Scope,
): (topic: string, partitions: readonly string[]) => Promise<void> {
  const told = new Set<string>()
  return async (topic, partitions) => {
    const begun = partitions.filter((partition) => !told.has(`${topic}/${partition}`))
    for (const partition of begun) told.add(`${topic}/${partition}`)
    if (begun.length === 0) return
    const types = streams.filter((stream) => stream.topic === topic).map(({ aggregateType }) => aggregateType)
    try {
      const found = await first(db, selectForgotten(scope, types))
      if (found === undefined) return
      const error = forgotten({ name, topic, partitions: begun, before: found.forgotten_before })
      signals.emit('consumer.disturbed', { consumer: name, topic, error })
    } catch (error) {
      for (const partition of begun) told.delete(`${topic}/${partition}`)
      signals.emit('consumer.disturbed', { consumer: name, topic, error })
    }
  }
}

function forgotten(of: {
  readonly name: string
  readonly topic: string
  readonly partitions: readonly string[]
  readonly before: string
}): WaybillError {
  return new WaybillError(
    'CORRUPT',
    `Consumer ${of.name} has read ${of.topic} before, but the broker has none of its offsets any more. Partitions ${of.partitions.join(', ')} are read from their beginning, and events that it handled before ${of.before}, which its inbox has forgotten, are handled again. Unless versioned upserts are its only effect, pause it and move it to a moment after that: waybill replay ${of.name} --from <time> --skip-older.`,
  )
}
