/**
 * The names that a deployment goes by, checked before they come near SQL or a message.
 *
 * A schema is never `public`: what is there is readable and writable for everybody whom the database or a REST layer on
 * top of it lets in.
 */
import { WaybillError } from '../../core/errors.ts'
import { name } from '../query/sql.ts'

/** Who is asking: a process states this at start and when it migrates. */
export interface DeploymentNames {
  readonly schema: string
  /** The service that owns the schema. */
  readonly service: string
  /** The deployment this process belongs to (`orders-production`). @default whatever the database is stamped with */
  readonly deploymentId?: string | undefined
}

const text = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/

export function checkedSchema(schema: string): string {
  name(schema)
  if (schema === 'public' || schema === 'information_schema' || schema.startsWith('pg_')) {
    const reason = schema === 'public' ? 'everybody who reaches the database may see it' : 'it belongs to Postgres'
    throw new WaybillError(
      'INVALID_OPTION',
      `schema: "${schema}" cannot be used: ${reason}. Choose a name of its own, such as "waybill".`,
    )
  }
  return schema
}

/** The names as given, or INVALID_OPTION. */
export function checkedNames({ schema, service, deploymentId }: DeploymentNames): DeploymentNames {
  checkedSchema(schema)
  for (const [option, value] of Object.entries({ service, deploymentId })) {
    if (option === 'deploymentId' && value === undefined) continue
    if (typeof value !== 'string' || !text.test(value)) {
      throw new WaybillError(
        'INVALID_OPTION',
        `${option}: expected letters, digits, ".", "_" or "-", at most 63, got ${JSON.stringify(value)}.`,
      )
    }
  }
  return { schema, service, deploymentId }
}
