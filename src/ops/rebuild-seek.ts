/**
 * How the subscription of a rebuild gets to where that begins: to a moment or the beginning, as every broker can, or to a snapshot,
 * where there is such a thing.
 */
import { WaybillError } from '../core/errors.ts'
import type { SeekTarget, SnapshotTarget, Transport } from '../transport/transport.ts'

/** Moves a subscription to each of these topics. REFUSED, before anything is moved, if nothing can be moved there. */
export function seekerOf(
  transport: Pick<Transport, 'seek' | 'seekToSnapshot'>,
  from: SeekTarget | SnapshotTarget,
  topics: readonly string[],
): (consumer: string) => Promise<void> {
  if (from === 'earliest' || 'sinceMs' in from) {
    return async (consumer) => {
      for (const topic of topics) await transport.seek({ topic, consumer, to: from })
    }
  }
  const { snapshot } = from
  const seekToSnapshot = transport.seekToSnapshot?.bind(transport)
  if (seekToSnapshot === undefined) throw refused(snapshot, 'this broker has no snapshots')
  const [topic = '', ...others] = topics
  if (others.length > 0) throw refused(snapshot, `it is of one topic, and the projections are of ${topics.join(', ')}`)
  return (consumer) => seekToSnapshot({ topic, consumer, snapshot })
}

function refused(snapshot: string, why: string): WaybillError {
  return new WaybillError(
    'REFUSED',
    `Nothing can be rebuilt from snapshot ${snapshot}: ${why}. Rebuild from earliest, a time or outbox.`,
  )
}
