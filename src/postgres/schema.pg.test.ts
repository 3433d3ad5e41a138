import { expect, test } from 'vitest'

import { describeSchema } from '../../test/setup/describe-schema.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from './from-pg.ts'
import { migrate } from './migrate.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('the schema is the one on record; whoever changes it sees in review what changed', async () => {
  await migrate(db, { schema: 'snapshot_of_schema', service: 'orders' })
  const superuser = (await db.query('select current_user::text as me')).rows[0] as { me: string }
  const lines = (await describeSchema(db, 'snapshot_of_schema', 'outline')).replaceAll(`owner ${superuser.me}`, 'owner :owner')
  await expect(lines).toMatchFileSnapshot('./schema.snapshot.txt')
})
