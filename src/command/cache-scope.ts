/**
 * Whose entries a cache holds: those of one schema, one deployment, one database.
 *
 * Several services, tenants and environments may share one Redis, and their principals and request ids may be the same. The
 * database is asked once; while it cannot be, the cache is left out.
 */
import type { SignalBus } from '../core/signals.ts'
import { one, type Queryable } from '../postgres/database.ts'
import { selectDeployment } from '../postgres/migrate.sql.ts'

/** Names the database in every key; undefined: go on without the cache. */
export type CacheScope = () => Promise<string | undefined>

/** Of commands without a cache. */
export const noScope: CacheScope = async () => undefined

export function deploymentScope(db: Queryable, schema: string, signals: SignalBus): CacheScope {
  let known: Promise<string> | undefined
  const read = async (): Promise<string> => {
    const { service, deployment_id: deploymentId, identity } = await one(db, selectDeployment(schema))
    return JSON.stringify([schema, service, deploymentId, identity])
  }
  return async () => {
    const asked = (known ??= read())
    try {
      return await asked
    } catch (error) {
      if (known === asked) known = undefined
      signals.emit('command.cache-failed', { operation: 'claim', error })
      return undefined
    }
  }
}
