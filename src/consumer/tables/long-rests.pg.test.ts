import { expect, test } from 'vitest'
import { consumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { newId } from '../../core/event/id.ts'
import { execute } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { restLetter } from './dead-letter.sql.ts'
import { inboxTables, restStored, type Scope } from './inbox.sql.ts'
import type { Item } from '../model/batch-item.ts'
import { restReceived } from './stored.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const item = { event: { id: newId() } } as Item
const rest = { delayMs: 365 * 24 * 3_600_000, error: 'e' }

test('a rest may be as long as the longest back-off, wherever the message is', async () => {
  const { schema } = await consumerFixture(db)
  const scope: Scope = { tables: inboxTables(schema), consumer: 'catalog', generation: 1 }
  for (const statement of [
    restStored(scope, item, rest),
    restReceived(scope, { lane: 0, seq: '1', state: 0 }, rest),
    restLetter(scope, '1', rest.delayMs),
  ])
    await expect(execute(db, statement)).resolves.toBeDefined()
})
