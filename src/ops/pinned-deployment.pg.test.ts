import { expect, test } from 'vitest'
import { bookBackfill, type BookRow } from '../../test/outbox/backfill-world.ts'
import { consumerFixture, videos } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { backfillFile } from '../outbox/backfill/file-source.ts'
import { createBackfill } from '../outbox/backfill/backfill.ts'
import { createOutbox } from '../outbox/outbox.ts'
import { createRelay } from '../outbox/relay/relay.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { memory } from '../transport/memory/memory.ts'
import { rebuild } from './rebuild/rebuild.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('relays, consumers, backfills and rebuilds that are pinned to another deployment do not start', async () => {
  const fixture = await consumerFixture(db)
  const { schema } = fixture
  const outbox = createOutbox({ schema })
  const life = { stopping: AbortSignal.abort(), aborting: AbortSignal.abort() }
  const set = (event: { data: { title: string } }) => ({ title: event.data.title })
  const deploymentId = 'staging'
  const catalog = fixture.consumer({ deploymentId }).project(videos, { table: `${schema}.video_view`, key: 'video_id', set })
  const source = backfillFile<BookRow>({ path: 'nowhere.ndjson' })
  const starts = [
    () => createRelay({ db, outbox, transport: memory(), deploymentId }).once(),
    () => catalog.run(life),
    () => createBackfill({ db, outbox, name: 'books', source, ...bookBackfill, deploymentId }).run(),
    () => rebuild({ consumer: catalog, from: 'outbox', actor: 'ada' }),
  ]
  const refusal = { code: 'WRONG_DEPLOYMENT', message: expect.stringContaining('this process is set to "staging"') }
  for (const start of starts) await expect(start()).rejects.toMatchObject(refusal)
})
