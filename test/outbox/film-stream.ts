/** A stream whose payloads are large, for tests of the claim check. */
import { z } from 'zod'
import { claimCheck } from '../../src/codec/claim-check.ts'
import type { BlobStore } from '../../src/core/encoding/blob-store.ts'
import { jsonCodec } from '../../src/core/encoding/codec.ts'
import { state, type EventDefinition } from '../../src/core/event/event.ts'
import { stream, type Stream } from '../../src/core/event/stream.ts'

export interface Film {
  readonly reel: string
}

export function filmStream(store: BlobStore): Stream<{ readonly FilmMade: EventDefinition<'state', Film, Film> }> {
  const codec = claimCheck(jsonCodec(z.object({ reel: z.string() })), { store, thresholdBytes: 1_000, timeoutMs: 120_000 })
  return stream('film', { topic: 'film.events', events: { FilmMade: state<Film, Film>(codec) } })
}
