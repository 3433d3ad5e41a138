/**
 * Works on the service that the page means, if its database is still the one that the dashboard was made for.
 */
import { WaybillError } from '../core/errors.ts'
import { whoMayOperate } from '../ops/connect/role-hints.ts'
import { explainForbidden } from '../postgres/connect-failure.ts'
import { assertSchema } from '../postgres/schema/deployment.ts'
import type { DashboardSettings, ShownService } from './dashboard-options.ts'

/** NOT_FOUND if no service of this name is shown here. */
export async function onService<Result>(
  { services }: DashboardSettings,
  name: string,
  work: (service: ShownService) => Promise<Result>,
): Promise<Result> {
  const service = services.find((each) => each.name === name)
  if (service === undefined) throw new WaybillError('NOT_FOUND', `This dashboard shows no service "${name}".`)
  try {
    await assertOwn(service)
    return await work(service)
  } catch (error) {
    throw explained(error, service)
  }
}

/** SCHEMA_MISMATCH or WRONG_DEPLOYMENT if it is not. */
export async function assertOwn({ db, schema, deploymentId }: ShownService): Promise<void> {
  await assertSchema(db, { schema, deploymentId })
}

/** What a role may not do, with who may; anything else as it is. */
export function explained(error: unknown, { schema }: ShownService): unknown {
  return explainForbidden(error, whoMayOperate({ schema }))
}
