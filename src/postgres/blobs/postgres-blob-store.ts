/**
 * Blobs in Postgres: for services whose writers and readers share the database and want nothing else to run.
 *
 * A blob is written in a transaction of its own, on another connection than the one whose transaction waits for it: give the
 * store a pool of its own, or writers that hold all connections wait for one another until the claim check's time-out. A
 * connection that falls silent is given up, whoever still waits for the blob.
 */
import { assertBlobKey, type BlobStore } from '../../core/encoding/blob-store.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { refuseUnknown } from '../../core/options.ts'
import {
  blobTables,
  expireBlobs,
  insertBlob,
  insertPart,
  selectBlob,
  selectPart,
  touchBlob,
  type BlobTables,
} from './blob.sql.ts'
import { execute, first, type Database } from '../query/database.ts'
import { transaction } from '../transaction/transaction.ts'
import { answerGraceMs, removalMs, withDeadlines } from '../transaction/deadline.ts'

export interface PostgresBlobStoreOptions {
  /** A pool of its own, straight or through a pooler. */
  readonly db: Database
  /** @default 'waybill' */
  readonly schema?: string
  readonly clock?: Clock
}

/** No statement carries more than this, and no answer more than twice as much text. */
const partBytes = 4 * 1_048_576
const expireBatch = 500

export function postgresBlobStore(options: PostgresBlobStoreOptions): Required<BlobStore> {
  refuseUnknown('postgresBlobStore', options, ['db', 'schema', 'clock'])
  const { schema = defaults.schema, clock = systemClock } = options
  const db = withDeadlines(options.db, { statementMs: defaults.transaction.statementTimeoutMs + answerGraceMs, clock })
  const tables = blobTables(schema)
  return {
    put: async (key, bytes, { signal }) => {
      assertBlobKey(key)
      if ((await first(db, touchBlob(tables, key))) === undefined) await write(db, tables, { key, bytes, signal })
    },
    get: async (key, { maxBytes, signal }) => {
      assertBlobKey(key)
      const found = await first(db, selectBlob(tables, key))
      if (found === undefined) return undefined
      if (Number(found.bytes) > maxBytes)
        throw new WaybillError('CORRUPT', `The blob ${key} has ${found.bytes} bytes instead of ${maxBytes}.`, {
          details: { key },
        })
      const parts: Uint8Array[] = []
      for (let part = 0; part < found.parts && !signal.aborted; part += 1) {
        const row = await first(db, selectPart(tables, key, part))
        if (row !== undefined) parts.push(row.bytes)
      }
      return Buffer.concat(parts)
    },
    expire: async (olderThanMs) =>
      await execute(withDeadlines(options.db, { statementMs: removalMs, clock }), expireBlobs(tables, olderThanMs, expireBatch)),
  }
}

async function write(
  db: Database,
  tables: BlobTables,
  { key, bytes, signal }: { readonly key: string; readonly bytes: Uint8Array; readonly signal: AbortSignal },
): Promise<void> {
  await transaction(db, async (tx) => {
    if ((await first(tx, insertBlob(tables, key, bytes.length))) === undefined) return
    for (let part = 0; part * partBytes < bytes.length; part += 1) {
      if (signal.aborted) throw new WaybillError('TIMEOUT', `The blob ${key} was not written in time.`)
      await execute(tx, insertPart(tables, { key, part, bytes: bytes.subarray(part * partBytes, (part + 1) * partBytes) }))
    }
  })
}
