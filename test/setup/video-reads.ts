/**
 * Reads of a projection of videos, on a database that a test answers for and a clock that it moves.
 */
import { createTokens, type Tokens } from '../../src/core/event/token.ts'
import type { Interruptible } from '../../src/postgres/query/database.ts'
import { createProjection } from '../../src/projection/projection.ts'
import { createReads, type Reads } from '../../src/projection/reads.ts'
import { createFakeClock, type FakeClock } from '../../src/testing/kit/fake-clock.ts'
import { videos } from './consumer-fixture.ts'

export interface VideoReads {
  readonly clock: FakeClock
  readonly reads: Reads
}

const tokens: Tokens = createTokens()

/** Proof of a write of that version of the video `x`. */
export function tokenOf(version: bigint, aggregateId = 'x'): string {
  return tokens.encode({ aggregateType: 'video', aggregateId, version })
}

export function videoReads(db: Interruptible): VideoReads {
  const clock = createFakeClock()
  const set = (event: { data: { title: string } }) => ({ title: event.data.title })
  const projection = createProjection(videos, { table: 'catalog.video_view', key: 'video_id', set })
  const reads = createReads({
    db,
    schema: 'waybill',
    consumer: 'catalog',
    streams: [videos],
    projections: () => [projection],
    tokens,
    positions: 'every',
    waitMs: 500,
    waitPollMs: 10,
    maxWaiters: 10,
    maxFallbacks: 2,
    clock,
  })
  return { clock, reads }
}
