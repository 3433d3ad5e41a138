/** Every statement on the tables that drills make for themselves, in a schema of their own. */
import { name, sql, type Name, type Statement } from '../../postgres/query/sql.ts'

export interface DrillTables {
  readonly schema: Name
  readonly account: Name
  readonly effect: Name
  readonly profile: Name
  readonly profileSeen: Name
  readonly request: Name
}

export function drillTables(schema: string): DrillTables {
  return {
    schema: name(schema),
    account: name(schema, 'drill_account'),
    effect: name(schema, 'drill_effect'),
    profile: name(schema, 'drill_profile'),
    profileSeen: name(schema, 'drill_profile_seen'),
    request: name(schema, 'drill_request'),
  }
}

/** The owner's tables, the consumer's tables, and a trigger that keeps every version its projection ever had, in their order. */
export function createDrillTables(tables: DrillTables): readonly Statement[] {
  const { account, effect, profile, profileSeen, request } = tables
  const note = name(...tables.schema.quoted.replaceAll('"', '').split('.'), 'drill_note_profile')
  return [
    sql`create table ${account} (id text primary key, total bigint not null)`,
    sql`create table ${effect} (
      id bigint generated always as identity primary key, event_id uuid not null, account text not null, amount bigint not null)`,
    sql`create table ${profile} (
      account text primary key, total bigint, version bigint not null, deleted_at timestamptz)`,
    sql`create table ${profileSeen} (
      id bigint generated always as identity primary key, account text not null, version bigint not null)`,
    sql`create table ${request} (id bigint generated always as identity primary key, request text not null, response text not null)`,
    sql`create function ${note}() returns trigger language plpgsql as $note$
      begin
        execute format('insert into %I.drill_profile_seen (account, version) values ($1, $2)', tg_table_schema)
          using new.account, new.version;
        return null;
      end $note$`,
    sql`create trigger drill_note after insert or update on ${profile} for each row execute function ${note}()`,
  ]
}

/** Removes everything a drill made in the database. */
export function dropDrillSchema({ schema }: DrillTables): Statement {
  return sql`drop schema if exists ${schema} cascade`
}

/** Adds to an account of the owner, and returns what it then has. */
export function addToAccount({ account }: DrillTables, id: string, amount: number): Statement<{ readonly total: string }> {
  return sql`
    insert into ${account} as a (id, total) values (${id}, ${amount}::int)
    on conflict (id) do update set total = a.total + excluded.total
    returning total::text`
}

/** The consumer's effect of a deposit: a row of its own, so that a second one shows. */
export function insertEffect(
  { effect }: DrillTables,
  row: { readonly eventId: string; readonly account: string; readonly amount: number },
): Statement {
  return sql`insert into ${effect} (event_id, account, amount) values (${row.eventId}::text::uuid, ${row.account}, ${row.amount}::int)`
}

/** The effect of a command, with what it answered. */
export function insertRequest({ request }: DrillTables, id: string, response: string): Statement {
  return sql`insert into ${request} (request, response) values (${id}, ${response})`
}

/** What commands did, in order. */
export function selectRequests({ request }: DrillTables): Statement<{ readonly request: string; readonly response: string }> {
  return sql`select request, response from ${request} order by id`
}

/** Every version that the projection had, in the order of the commits. */
export function selectSeenVersions({
  profileSeen,
}: DrillTables): Statement<{ readonly account: string; readonly version: string }> {
  return sql`select account, version::text from ${profileSeen} order by id`
}

/** The version that every row of the projection has reached. */
export function lowestProfileVersion({ profile }: DrillTables): Statement<{ readonly version: number }> {
  return sql`select coalesce(min(version), 0)::int as version from ${profile}`
}

export function countEffects({ effect }: DrillTables): Statement<{ readonly count: number }> {
  return sql`select count(*)::int as count from ${effect}`
}

/** How many events wait to be published. */
export function countDispatch(dispatch: Name): Statement<{ readonly count: number }> {
  return sql`select count(*)::int as count from ${dispatch}`
}

/** The server process of a transaction. */
export function selectOwnPid(): Statement<{ readonly pid: number }> {
  return sql`select pg_backend_pid() as pid`
}

/** How long the transaction of this server process has been open; 0 if there is none. */
export function transactionAgeMs(pid: number): Statement<{ readonly ms: number }> {
  return sql`
    select coalesce(max(extract(epoch from clock_timestamp() - xact_start) * 1000), 0)::float8 as ms
      from pg_stat_activity where pid = ${pid}::int`
}
