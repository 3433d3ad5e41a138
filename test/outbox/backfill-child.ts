/** A backfill in a process of its own, with a failpoint around its ports. Its argument says what to walk. */
import { backfillFile } from '../../src/outbox/backfill/file-source.ts'
import { backfillTable } from '../../src/outbox/backfill/table-source.ts'
import { createBackfill } from '../../src/outbox/backfill/backfill.ts'
import { createOutbox } from '../../src/outbox/outbox.ts'
import { connect } from '../../src/postgres/connect.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createFailpoints, withFailpoints } from '../../src/testing/faults/failpoint.ts'
import { bookBackfill, type BookRow } from './backfill-world.ts'

export interface BackfillChildSettings {
  readonly url: string
  readonly schema: string
  readonly table?: string
  readonly file?: string
}

const { url, schema, table = '', file } = JSON.parse(process.argv[2] ?? '') as BackfillChildSettings
const failpoints = createFailpoints()
const connection = connect({ url, max: 2 })
const db = withFailpoints(connection, { failpoints, places: [{ name: 'committed', method: 'attempt', when: 'after' }] })
const outbox = withFailpoints(createOutbox({ schema }), {
  failpoints,
  places: [{ name: 'added', method: 'addMany', when: 'after' }],
})
const source = file === undefined ? backfillTable<BookRow>({ table, key: 'id' }) : backfillFile<BookRow>({ path: file })
const backfill = createBackfill({ db, outbox, name: 'books', source, ...bookBackfill, rowsPerSecond: 100_000, batchSize: 25 })
// A first connection may take long on a busy machine.
await eventually(() => connection.query('select 1'))
process.send?.({ report: await backfill.run({ mode: 'resume' }) })
await connection.close()
process.disconnect()
