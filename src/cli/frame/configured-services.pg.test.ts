import { expect, test } from 'vitest'
import { runLine } from '../../../test/setup/run-line.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'

const database = await testDatabase()

test('of the databases beside its own, the one that is down is named', async () => {
  await migrate(fromPg(database.pool), { schema: 'waybill', service: 'orders' })
  const { code, err } = await runLine(`trace r1 --also postgres://app@127.0.0.1:1/shop,${database.url}`, {
    folder: import.meta.dirname,
    env: { DATABASE_URL: database.url },
  })
  expect({ code, err }).toEqual({
    code: 1,
    err: 'The database at app@127.0.0.1:1/shop refused the connection. Is it running, and is that its port? Check the database URL.\n',
  })
})
