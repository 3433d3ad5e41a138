/** Mistakes in who may do what: roles of a server, locks that strangers can hold, records and their writers. */
import type { SourceMutant } from './source-mutant.ts'

const isolation = 'src/postgres/schema/role-isolation.pg.test.ts'
const locks = 'src/transport/postgres/locks.pg.test.ts'
const cleanup = 'src/command/marker-cleanup.pg.test.ts'
const audit =
  'the audit log keeps what it has > an operator adds rows, as the user that it is, and can change, remove or forge none'

export const roleMutants: readonly SourceMutant[] = [
  {
    mutant: 'takes over a role that may log in',
    file: 'src/postgres/schema/roles.sql.ts',
    from: '    if role.mighty then',
    to: '    if false then',
    caughtBy: { file: isolation, test: 'a role that exists already is refused, and nothing is changed > with login' },
  },
  {
    mutant: 'takes over a role with its members',
    file: 'src/postgres/schema/roles.sql.ts',
    from: 'elsif not role.own and role.members is not null then',
    to: 'elsif false then',
    caughtBy: {
      file: isolation,
      test: 'a role that exists already is refused, and nothing is changed > with a member that is not known',
    },
  },
  {
    mutant: 'shares the roles of another database',
    file: 'src/postgres/schema/roles.sql.ts',
    from: "    elsif role.mark like 'Waybill: %' and role.mark <> mark",
    to: "    elsif role.mark like 'Nothing: %' and role.mark <> mark",
    caughtBy: {
      file: isolation,
      test: 'a copy of a database on the same server gets no roles of its original, which keeps its own',
    },
  },
  {
    mutant: 'names roles after the schema alone',
    file: 'src/postgres/schema/roles.ts',
    from: "const stem = `${schema}_${service.toLowerCase().replaceAll(/[^a-z0-9]+/g, '_')}`",
    to: 'const stem = service === schema ? service : schema',
    caughtBy: {
      file: 'src/postgres/schema/roles.test.ts',
      test: 'two services with one schema have other roles, each time the same',
    },
  },
  {
    mutant: 'lets publishers overtake a subscriber that waits',
    file: 'sql/0004_create_transport.sql',
    from: '  if :schema.transport_gate_shut(own) then',
    to: '  if false then',
    caughtBy: { file: locks, test: 'a subscriber that waits for a topic is not overtaken by publishers that come later' },
  },
  {
    mutant: 'lets a stranger hold up backfills by a key',
    file: 'src/postgres/operation.sql.ts',
    from: 'sql`lock table ${operationTable(schema)} in share update exclusive mode`',
    to: 'sql`select pg_advisory_xact_lock(hashtextextended(${`waybill backfill ${schema} orders`}, 0))`',
    caughtBy: {
      file: locks,
      test: 'a login without rights holds no lock that a publisher, a subscriber, a sweep, a backfill or a migration waits for',
    },
  },
  {
    mutant: 'believes a writer of the audit log who it is',
    file: 'sql/0001_create_foundation.sql',
    from: '  new.database_user := session_user;\n',
    to: '',
    caughtBy: { file: isolation, test: audit },
  },
  {
    mutant: 'lets the audit log be emptied',
    file: 'sql/0001_create_foundation.sql',
    from: 'before update or delete or truncate on',
    to: 'before update or delete on',
    caughtBy: { file: isolation, test: audit },
  },
  {
    mutant: 'believes a caller how long markers are kept',
    file: 'sql/0006_create_commands.sql',
    from: 'greatest(expire_markers.keep_ms, (select r.keep_ms from :schema.marker_retention r), 1)',
    to: 'expire_markers.keep_ms',
    caughtBy: { file: cleanup, test: 'no caller deletes a marker that is younger than the database keeps them' },
  },
  {
    mutant: 'changes the answer of a command that has committed',
    file: 'sql/0006_create_commands.sql',
    from: ' and :schema.xid_in_progress(m.xmin)',
    to: '',
    caughtBy: { file: cleanup, test: 'the answer of a command is kept by the transaction that made its marker, and by no other' },
  },
  {
    mutant: 'shows payloads to the read-only role',
    file: 'src/postgres/schema/roles.ts',
    from: "schema_version, content_type, headers, occurred_at)'",
    to: "schema_version, content_type, headers, occurred_at, payload)'",
    caughtBy: {
      file: 'src/postgres/schema/roles.test.ts',
      test: 'the read-only role has no column with what messages and commands contain',
    },
  },
]
