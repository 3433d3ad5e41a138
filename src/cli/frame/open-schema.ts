/**
 * Opens the database of a command that works on a schema, and refuses one that is not the service, the deployment or the
 * version that the command is set to: a shell that still points at production must not be able to change it.
 */
import { withDatabase } from '../../ops/connect/with-database.ts'
import type { Connection } from '../../postgres/connect.ts'
import { assertSchema } from '../../postgres/schema/deployment.ts'
import type { Settings } from './settings.ts'

export async function withSchema<Result>(
  settings: Settings,
  work: (db: Connection, schema: string) => Promise<Result>,
  options: { readonly max?: number } = {},
): Promise<Result> {
  const names = settings.knownNames()
  const checked = async (db: Connection): Promise<Result> => {
    await assertSchema(db, names)
    return await work(db, names.schema)
  }
  return await withDatabase(settings.databaseUrl(), checked, options)
}
