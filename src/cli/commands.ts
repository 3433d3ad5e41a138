/** Every command of the CLI, by the words that call it. Help, parsing and the reference page follow this table. */
import type { Command } from './command.ts'
import { migrateAdopt, migrateSql, migrateStatus, migrateUp } from './migrate-commands.ts'
import { doctorPubsubCommand, provision } from './provision-commands.ts'

export const commands: Readonly<Record<string, Command>> = {
  'migrate up': migrateUp,
  'migrate status': migrateStatus,
  'migrate sql': migrateSql,
  'migrate adopt': migrateAdopt,
  provision,
  'doctor pubsub': doctorPubsubCommand,
}
