/** `commands.run` inside a command's open transaction is refused; before it, after it and for another database it is not. */
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { commandSetup, gate, heard } from '../../../test/command/command-setup.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { fromDrizzle } from '../../postgres/adapters/from-drizzle.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { command, type Command } from '../model/command.ts'
import type { Commands } from '../commands.ts'
import { reject } from '../model/rejection.ts'

const { database, db, commandsWith, newRequest } = await commandSetup()
const commands = commandsWith()
const other = fromPg((await testDatabase()).pool)
await migrate(other, { schema: 'waybill', service: 'other' })
const elsewhere = commandsWith({ db: other })
const onlyOne = new pg.Pool({ connectionString: database.url, max: 1, connectionTimeoutMillis: 1_000 })
afterAll(() => onlyOne.end())

const inner = command('Inner', { input: z.object({}), execute: async () => 'done' })
const runInner = (on: Commands) => on.run(inner, { principal: 'ann', requestId: newRequest(), input: {} })
const request = () => ({ principal: 'ann', requestId: newRequest(), input: {} })

let made = 0
/** A command that does something in its execute. */
function outer<Result>(work: () => Promise<Result>): Command<object, Result> {
  return command(`Outer${(made += 1)}`, { input: z.object({}), execute: work })
}

const refusal = {
  code: 'INVALID_OPTION',
  message: expect.stringMatching(/commands\.run\(Inner\) was called inside the transaction of \w+, .*child\(Inner, input\)/),
}

describe('commands.run inside the open transaction of a command', () => {
  test('is refused at once, with what to use instead, and both commands change nothing', async () => {
    const { signals, all } = heard('command.threw')
    const alone = commandsWith({ db: fromPg(onlyOne), signals })
    await expect(
      alone.run(
        outer(() => runInner(alone)),
        request(),
      ),
    ).rejects.toMatchObject(refusal)
    expect(all.map(({ command: name }) => name)).toEqual(['Inner', expect.stringMatching(/^Outer/)])
  })

  test.each([
    { by: 'another adapter over the same pool', other: () => fromPg(database.pool) },
    { by: 'Drizzle over the same pool', other: () => fromDrizzle(drizzle({ client: database.pool })) },
    { by: 'a copy of the database', other: () => ({ ...db }) },
  ])('is refused through $by too', async ({ other }) => {
    const others = commandsWith({ db: other() })
    await expect(
      commands.run(
        outer(() => runInner(others)),
        request(),
      ),
    ).rejects.toMatchObject(refusal)
  })

  test('is refused in a load, whose transaction is open as well', async () => {
    const loading = command('Load', { input: z.object({}), load: () => runInner(commands), execute: async () => 'done' })
    await expect(commands.run(loading, request())).rejects.toMatchObject(refusal)
  })

  test('is refused behind a command for another database, as long as the first is open', async () => {
    const between: Command<object, unknown> = outer(() => runInner(commands))
    await expect(
      commands.run(
        outer(() => elsewhere.run(between, request())),
        request(),
      ),
    ).rejects.toMatchObject(refusal)
  })
})

describe('commands.run is not refused', () => {
  test('for another database', async () => {
    const outcome = await commands.run(
      outer(() => runInner(elsewhere)),
      request(),
    )
    expect(outcome).toMatchObject({ status: 'executed', response: { status: 'executed' } })
  })

  test('in a plan, which has no transaction', async () => {
    const planning = command('Plan', {
      input: z.object({}),
      plan: () => runInner(commands),
      execute: async (_tx, { status }) => status,
    })
    expect(await commands.run(planning, request())).toMatchObject({ status: 'executed', response: 'executed' })
  })

  test.each([
    { end: 'committed', ends: async () => 'done' },
    { end: 'been rolled back', ends: () => Promise.reject(reject('no')) },
  ])('in what execute left running, once its transaction has $end', async ({ ends }) => {
    const ended = gate()
    let later: ReturnType<typeof runInner> | undefined
    await commands.run(
      outer(async () => {
        later = ended.opened.then(() => runInner(commands))
        return await ends()
      }),
      request(),
    )
    ended.open()
    expect(await later).toMatchObject({ status: 'executed' })
  })
})
