/**
 * Who may do what a command does, as a sentence for those who connected as somebody else. See ../postgres/roles.ts.
 */

/** For every command that works on a schema. */
export function whoMayOperate(schema: string): string {
  return `Operators connect as a member of ${schema}_owner, relays of ${schema}_relay, consumers of ${schema}_consumer (made by: waybill migrate up --roles).`
}

/** For those that make or change the schema itself. */
export function whoMayMigrate(schema: string): string {
  return `Use a role that may create schemas, and roles with --roles; for a schema that has its roles, a member of ${schema}_owner. Or have an administrator run what \`waybill migrate sql\` prints.`
}
