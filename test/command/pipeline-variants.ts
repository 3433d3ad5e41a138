/**
 * The pipeline with one of its promises broken, by replacing a port. The tests must notice each of them.
 */
import { lockAggregates } from '../../src/command/model/aggregate.ts'
import type { MarkerStore } from '../../src/command/model/markers.ts'
import type { Pipeline } from '../../src/command/pipeline/run.ts'
import { cacheKey } from '../../src/command/cache/cache.ts'
import { planCommand } from '../../src/command/pipeline/plan.ts'
import type { NewMarker } from '../../src/command/model/command.sql.ts'
import { versionConflict } from '../../src/command/model/rejection.ts'
import { systemRandom, seededRandom } from '../../src/core/service/random.ts'
import { markTx } from '../../src/postgres/query/database.ts'

export type Variant = (pipeline: Pipeline) => Pipeline

export const mutants: Readonly<Record<string, Variant>> = {
  'no marker': (pipeline) => ({
    ...pipeline,
    markers: { claim: lockOnly, find: async () => undefined, keep: async () => undefined },
  }),

  'the marker comes after the work': (pipeline) => {
    const late = new WeakMap<object, NewMarker>()
    return {
      ...pipeline,
      markers: {
        ...pipeline.markers,
        claim: async (tx, marker, aggregates) => {
          late.set(tx, marker)
          return await lockOnly(tx, marker, aggregates)
        },
      },
      execute: async (tx, node, state) => {
        const response = await pipeline.execute(tx, node, state)
        const marker = late.get(tx)
        late.delete(tx)
        if (marker !== undefined && (await pipeline.markers.claim(tx, marker, [])) === undefined)
          throw versionConflict('the marker')
        return response
      },
    }
  },

  'the marker is written in another transaction': (pipeline) => ({
    ...pipeline,
    markers: {
      ...pipeline.markers,
      claim: async (tx, marker, aggregates) => {
        const elsewhere = markTx({ native: null, query: pipeline.db.query.bind(pipeline.db) })
        const claimed = await pipeline.markers.claim(elsewhere, marker, [])
        return claimed && (await lockOnly(tx, marker, aggregates))
      },
    },
  }),

  'the cache is completed before COMMIT': (pipeline) => ({
    ...pipeline,
    markers: {
      ...pipeline.markers,
      keep: async (tx, key, answer) => {
        await pipeline.markers.keep(tx, key, answer)
        const row = await pipeline.markers.find(tx, key)
        const { fingerprint = '' } = row ?? {}
        const pending = { state: 'pending' as const, fingerprint, token: '', aliveAtMs: 0 }
        const completed = { state: 'completed', fingerprint, rejected: false, response: answer.response } as const
        // The claim must go first: completing respects another's pending value.
        const place = cacheKey((await pipeline.cacheScope()) ?? '', key)
        await forget(place)
        await pipeline.cache.complete(place, pending, completed)
      },
    },
  }),

  'the plan is made inside the loop': (pipeline) => ({
    ...pipeline,
    execute: async (tx, node, state) => {
      if (state.attempt === 1) return await pipeline.execute(tx, node, state)
      const { definition, input, request } = node
      const [random, enter] = [seededRandom(systemRandom.next()), () => () => undefined]
      const parts = { db: pipeline.db, random, enter, loading: pipeline.transactions.loading }
      return await pipeline.execute(tx, await planCommand(parts, { definition, input, request }), state)
    },
  }),

  'the fingerprint is ignored': (pipeline) => ({ ...pipeline, fingerprint: () => '0'.repeat(32) }),
}

const lockOnly: MarkerStore['claim'] = (tx, _marker, aggregates) => lockAggregates(tx, aggregates)

let forget: (key: string) => Promise<void> = async () => undefined

/** Tells the variants how to remove a key from the cache that the test uses. */
export function setForget(remove: (key: string) => Promise<void>): void {
  forget = remove
}
