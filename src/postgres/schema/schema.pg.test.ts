import { afterAll, expect, test } from 'vitest'

import { describeSchema } from '../../../test/setup/describe-schema.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { migrate } from './migrate.ts'
import { groupRole, groupRoles } from './roles.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const schema = `s${database.name}`

afterAll(async () => {
  await db.query(`drop schema if exists ${schema} cascade`)
  for (const role of groupRoles) await db.query(`drop role if exists ${groupRole({ schema, service: 'orders' }, role)}`)
})

/** After a change of the schema: vitest run src/postgres/schema/schema.pg.test.ts --update */
test('the schema is the one on record; whoever changes it sees in review what changed', async () => {
  await migrate(db, { schema, service: 'orders', roles: true })
  await expect(await describeSchema(db, schema, 'outline')).toMatchFileSnapshot('./schema.snapshot.txt')
})

test('a function that turns a kind of plan off is not compiled: before PostgreSQL 18 each call would take a second longer', async () => {
  await migrate(db, { schema, service: 'orders', roles: true })
  const { rows } = await db.query(
    `select proname, 'jit=off' = any (proconfig) as spared from pg_proc
      where pronamespace = $1::text::regnamespace and proconfig::text like '%enable\\_%' order by proname`,
    [schema],
  )
  const names = ['add_events', 'add_facts', 'outbox_expire', 'outbox_read', 'outbox_settle', 'transport_sweep_topic']
  const spared = names.map((proname) => ({ proname, spared: true }))
  expect(rows).toEqual(spared)
})

test('every table has a replica identity: under a publication for all tables nothing could be changed in it otherwise', async () => {
  await migrate(db, { schema, service: 'orders', roles: true })
  const { rows } = await db.query(
    `select c.relname from pg_class c
      where c.relnamespace = $1::text::regnamespace and c.relkind in ('r', 'p') and c.relreplident <> 'f'
        and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)`,
    [schema],
  )
  expect(rows).toEqual([])
})
