/**
 * Refuses a stack that calls itself production, by its configuration, by the environment of this process, or by what the
 * schema in its database is stamped with: a tunnel makes any database look like one of this machine.
 */
import { WaybillError } from '../../core/errors.ts'
import { productionSign } from '../../drill/target/production-sign.ts'
import { withDatabase } from '../../ops/connect/with-database.ts'
import { migrationStatus, type DeploymentStamp } from '../../postgres/schema/status.ts'
import type { Settings } from './settings.ts'

/** Returns what the schema is stamped with, if it is there; `advice` says what would happen, and what to do instead. */
export async function refuseProduction(settings: Settings, advice: string): Promise<DeploymentStamp | undefined> {
  const { schema, deploymentId } = settings.knownNames()
  const stamped = await withDatabase(settings.databaseUrl(), async (db) => (await migrationStatus(db, { schema })).deployment)
  const deploymentIds = [deploymentId, stamped?.deploymentId].filter((each) => each !== undefined)
  const sign = productionSign({ environments: settings.environments, deploymentIds })
  if (sign === undefined) return stamped
  throw new WaybillError('REFUSED', `This stack calls itself production: ${sign}. ${advice}`)
}
