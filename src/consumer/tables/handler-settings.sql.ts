/** The statements that keep a transaction's settings while a handler changes them, and put them back. */
import { sql, sqlArray, type Statement } from '../../postgres/query/sql.ts'

/** All that may be set, and of settings that are not listed (`role`, those of applications) the named ones, by name and as JSON. */
export function keepSettings(names: readonly string[]): Statement<{ settings: string; role: string }> {
  return sql`
    select (select json_object_agg(k.name, k.setting) from (
              select s.name, s.setting from pg_settings s where s.context in ('user', 'superuser')
              union all
              select n, coalesce(current_setting(n, true), '') from unnest(${sqlArray(names)}::text::text[]) as n
               where n <> 'role' and n not in (select lower(s.name) from pg_settings s)) k)::text as settings,
           current_setting('role') as role`
}

/** Before the others: who may set what depends on it. */
export function putBackRole(role: string): Statement {
  return sql`select set_config('role', ${role}::text, true)`
}

/** Sets what is not as it was kept, until the transaction ends. */
export function putBackSettings(settings: string): Statement {
  return sql`
    with changed as materialized (
      select k.key, k.value from json_each_text(${settings}::text::json) k left join pg_settings s on s.name = k.key
       where coalesce(s.setting, current_setting(k.key, true), '') <> k.value
    )
    select set_config(c.key, c.value, true) from changed c`
}
