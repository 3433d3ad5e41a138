/**
 * Asks the inbox of a consumer about one event: for the `processed` of an ingest whose facts it reads.
 */
import { defaults } from '../../core/defaults.ts'
import { refuseUnknown } from '../../core/options.ts'
import { first, type Queryable } from '../../postgres/query/database.ts'
import { inboxTables, selectProcessed } from '../tables/inbox.sql.ts'

export interface ProcessedByOptions {
  /** The schema of the consumer. @default 'waybill' */
  readonly schema?: string
}

/** Whether the consumer has processed an event; `'conflict'` if a fact with other content came under its key as well. */
export function processedBy(
  db: Queryable,
  consumer: string,
  options: ProcessedByOptions = {},
): (event: { readonly eventId: string }) => Promise<boolean | 'conflict'> {
  refuseUnknown('processedBy', options, ['schema'])
  const tables = inboxTables(options.schema ?? defaults.schema)
  return async ({ eventId }) => {
    const found = await first(db, selectProcessed(tables, { consumer, eventId }))
    return found?.conflict === true ? 'conflict' : found !== undefined
  }
}
