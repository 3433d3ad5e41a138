import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { withDatabase } from './with-database.ts'

const database = await testDatabase()

test('a database that cannot be reached is told before the work begins, and by its own address', async () => {
  const down = withDatabase(database.url, () => withDatabase('postgres://app@127.0.0.1:1/shop', () => Promise.resolve('worked')))
  await expect(down).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    message: expect.stringContaining('The database at app@127.0.0.1:1/shop refused the connection.'),
  })
})

test('what the work cannot reach is not taken for the database', async () => {
  const broker = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:9092'), { code: 'ECONNREFUSED' })
  await expect(withDatabase(database.url, () => Promise.reject(broker))).rejects.toBe(broker)
})

test('a file of the database URL that is missing is told by its name, and not taken for the socket of the server', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-certificates-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const without = (part: string): Promise<unknown> =>
    withDatabase(`postgres://app@localhost/shop?${part}`, () => Promise.resolve())
  await expect(without(`host=${folder}`)).rejects.toThrow('has no socket there')
  const missing = without(`sslrootcert=${folder}/none.pem`)
  await expect(missing).rejects.toThrow('none.pem')
  await expect(missing).rejects.not.toThrow('socket')
})
