import { expect, test } from 'vitest'
import { outboxFixture } from '../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import type { BeginOptions, Database } from '../postgres/database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { changeLanes, listLanes } from './outbox-status.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('a change of lanes is given all the time that its backlog takes', async () => {
  const { outbox } = await outboxFixture(db)
  const begun: BeginOptions[] = []
  const watched: Database = {
    ...db,
    attempt: (options, work) => {
      begun.push(options)
      return db.attempt(options, work)
    },
  }
  await changeLanes(watched, outbox, { lanes: 8, actor: 'ada' })
  expect(begun.map(({ statementTimeoutMs }) => statementTimeoutMs)).toEqual([0])
  expect(await listLanes(db, outbox)).toHaveLength(8)
})
