/**
 * Who may do what a command does, as a sentence for those who connected as somebody else. See ../../postgres/schema/roles.ts.
 */
import { shownGroupRole } from '../../postgres/schema/roles.ts'

interface Names {
  readonly schema: string
  readonly service?: string | undefined
}

/** For every command that works on a schema. */
export function whoMayOperate(names: Names): string {
  const [owner, relay, consumer, payloads] = (['owner', 'relay', 'consumer', 'payloads'] as const).map((role) =>
    shownGroupRole(names, role),
  )
  return `Operators connect as a member of ${owner}, relays of ${relay}, consumers of ${consumer}; payloads, and who asked for what, are for members of ${payloads} (made by: waybill migrate up --roles).`
}

/** For those that make or change the schema itself. */
export function whoMayMigrate(names: Names): string {
  return `Use a role that may create schemas, and roles with --roles; for a schema that has its roles, a member of ${shownGroupRole(names, 'owner')}. Or have an administrator run what \`waybill migrate sql\` prints.`
}
