/**
 * How the subscription of a rebuild gets to where that begins: to a moment or the beginning, as every broker can, or to a snapshot,
 * where there is such a thing.
 */
import { isWaybillError, WaybillError } from '../../core/errors.ts'
import type { SeekTarget, SnapshotTarget, Transport } from '../../transport/port/transport.ts'

/** Moves a subscription to each of these topics. REFUSED, before anything is moved, if nothing can be moved there. */
export function seekerOf(
  transport: Pick<Transport, 'seek' | 'seekToSnapshot'>,
  from: SeekTarget | SnapshotTarget,
  topics: readonly string[],
): (consumer: string) => Promise<void> {
  if (from === 'earliest' || 'sinceMs' in from) {
    return async (consumer) => {
      for (const topic of topics) await transport.seek({ topic, consumer, to: from }).catch(missing(topic, consumer))
    }
  }
  const { snapshot } = from
  const seekToSnapshot = transport.seekToSnapshot?.bind(transport)
  if (seekToSnapshot === undefined) throw refused(snapshot, 'this broker has no snapshots')
  const [topic = '', ...others] = topics
  if (others.length > 0) throw refused(snapshot, `it is of one topic, and the projections are of ${topics.join(', ')}`)
  return (consumer) => seekToSnapshot({ topic, consumer, snapshot }).catch(missing(topic, consumer, snapshot))
}

/** Provisioning makes neither. */
function missing(topic: string, consumer: string, snapshot?: string): (error: unknown) => never {
  const what = snapshot === undefined ? 'it' : `it, or snapshot ${snapshot} of the topic,`
  return (error) => {
    if (!isWaybillError(error, 'NOT_FOUND')) throw error
    const sentence = `A rebuild reads ${topic} over a subscription of its own, as ${consumer}: ${what} is not there. Make it first, as docs/guides/rebuild.md says, and run the same again.`
    throw new WaybillError('NOT_FOUND', sentence, { cause: error })
  }
}

function refused(snapshot: string, why: string): WaybillError {
  return new WaybillError(
    'REFUSED',
    `Nothing can be rebuilt from snapshot ${snapshot}: ${why}. Rebuild from earliest, a time or outbox.`,
  )
}
