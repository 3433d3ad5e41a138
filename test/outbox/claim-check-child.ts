/** A writer that keeps a large payload and dies before its transaction commits. */
import { createOutbox } from '../../src/outbox/outbox.ts'
import { connect } from '../../src/postgres/connect.ts'
import { postgresBlobStore } from '../../src/postgres/blobs/postgres-blob-store.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { createFailpoints, withFailpoints } from '../../src/testing/faults/failpoint.ts'
import { filmStream } from './film-stream.ts'

const { url, schema } = JSON.parse(process.argv[2] ?? '') as { readonly url: string; readonly schema: string }
const store = withFailpoints(postgresBlobStore({ db: connect({ url, max: 1 }), schema }), {
  failpoints: createFailpoints(),
  places: [{ name: 'kept', method: 'put', when: 'after' }],
})
const films = filmStream(store)
await transaction(connect({ url, max: 1 }), (tx) =>
  createOutbox({ schema }).add(tx, films.FilmMade, 'f1', { reel: 'x'.repeat(5_000) }),
)
