/**
 * Places between any two steps of the pipeline, where a test may let something happen. They are around the pipeline's ports; the
 * pipeline itself knows nothing of them.
 */
import type { Pipeline } from '../../src/command/pipeline/run.ts'

/** In the order in which a command that takes effect passes them; one that does not passes `releasing` and `released` in the end. */
export const places = [
  'asked',
  'claimed',
  'beginning',
  'begun',
  'marked',
  'executing',
  'executed',
  'added',
  'kept',
  'committing',
  'committed',
  'completing',
  'completed',
  'releasing',
  'released',
] as const

export type Place = (typeof places)[number]

/** The pipeline, which now passes the places. */
export function withPlaces(pipeline: Pipeline, hit: (place: Place) => Promise<void>): Pipeline {
  const around = async <Result>(before: Place, after: Place, step: () => Promise<Result>): Promise<Result> => {
    await hit(before)
    return await then(after, step())
  }
  const then = async <Result>(after: Place, step: Promise<Result>): Promise<Result> => {
    const result = await step
    await hit(after)
    return result
  }
  const { db, cache, markers, outbox, execute } = pipeline
  return {
    ...pipeline,
    db: {
      ...db,
      attempt: (options, work) =>
        around('beginning', 'committed', () => db.attempt(options, (tx) => around('begun', 'committing', () => work(tx)))),
    },
    cache: {
      isProved: cache.isProved,
      claim: (...args) => around('asked', 'claimed', () => cache.claim(...args)),
      renew: (...args) => cache.renew(...args),
      complete: (...args) => around('completing', 'completed', () => cache.complete(...args)),
      release: (...args) => around('releasing', 'released', () => cache.release(...args)),
    },
    markers: {
      ...markers,
      claim: (...args) => then('marked', markers.claim(...args)),
      keep: (...args) => then('kept', markers.keep(...args)),
    },
    execute: (...args) => around('executing', 'executed', () => execute(...args)),
    outbox: { addMany: (...args) => then('added', outbox.addMany(...args)) },
  }
}
