import { expect, inject, test } from 'vitest'

import { testDatabase } from '../../../test/setup/test-database.ts'
import { createTestDatabase, execute } from './test-database.ts'

const db = await testDatabase()

test('a test file gets a database of its own, through the way under test', async () => {
  const { rows } = await db.pool.query('select current_database() as name, current_setting($1) as version', ['server_version'])
  expect(rows).toEqual([{ name: db.name, version: expect.stringMatching(/^\d+/) }])
})

test('a role made by a test can connect the same way', async () => {
  const role = `reader_${db.name}`
  await execute(db.directUrl, `create role ${role} login`)
  const url = new URL(db.url)
  url.username = role
  await execute(url.href, 'select 1')
  await execute(db.directUrl, `drop role ${role}`)
})

test('a database can be the copy of another', async () => {
  const original = await createTestDatabase(inject('postgres'))
  await execute(original.directUrl, 'create table proof (id int)')
  const copy = await createTestDatabase(inject('postgres'), { template: original.name })
  await copy.pool.query('insert into proof values (1)')
  await copy.drop()
  await original.drop()
  await expect(execute(copy.directUrl, 'select 1')).rejects.toThrow('does not exist')
})
