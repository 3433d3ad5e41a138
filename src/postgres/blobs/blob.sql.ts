/** Every statement on the tables of blobs. No other file may name them. */
import { name, sql, type Name, type Statement } from '../query/sql.ts'

export interface BlobTables {
  readonly blob: Name
  readonly part: Name
}

export function blobTables(schema: string): BlobTables {
  return { blob: name(schema, 'blob'), part: name(schema, 'blob_part') }
}

/** Makes a blob that is there new again, so that retention leaves it. Index: blob_pkey. */
export function touchBlob(tables: BlobTables, key: string): Statement<{ key: string }> {
  return sql`update ${tables.blob} set used_at = clock_timestamp() where key = ${key} returning key`
}

/** Claims the key. No row means that somebody else has just written the same blob, and it is committed. Index: blob_pkey. */
export function insertBlob(tables: BlobTables, key: string, bytes: number): Statement<{ key: string }> {
  return sql`
    insert into ${tables.blob} (key, bytes) values (${key}, ${String(bytes)}::text::bigint)
    on conflict (key) do nothing
    returning key`
}

export function insertPart(
  tables: BlobTables,
  { key, part, bytes }: { readonly key: string; readonly part: number; readonly bytes: Uint8Array },
): Statement {
  return sql`insert into ${tables.part} (key, part, bytes) values (${key}, ${part}::int, ${bytes}::bytea)`
}

/** How large a blob is. Index: blob_pkey. */
export function selectBlob(tables: BlobTables, key: string): Statement<{ bytes: string; parts: number }> {
  return sql`
    select b.bytes::text, (select count(*)::int from ${tables.part} p where p.key = b.key) as parts
      from ${tables.blob} b where b.key = ${key}`
}

/** Index: blob_part_pkey. */
export function selectPart(tables: BlobTables, key: string, part: number): Statement<{ bytes: Uint8Array }> {
  return sql`select bytes from ${tables.part} where key = ${key} and part = ${part}::int`
}

/**
 * Removes a batch of blobs that nobody has written for a while, the oldest first; their parts go with them. The lock looks at
 * `used_at` again, so a blob that is used at this moment stays. The age is a subquery, computed once: a volatile function is no
 * condition of an index. Index: blob_used_at_idx.
 */
export function expireBlobs(tables: BlobTables, olderThanMs: number, limit: number): Statement {
  return sql`
    with old as materialized (
      select key from ${tables.blob}
       where used_at < (select clock_timestamp() - ${olderThanMs}::float8 * interval '1 millisecond')
       order by used_at
       limit ${limit}::int
         for update skip locked)
    delete from ${tables.blob} b using old where b.key = old.key`
}
