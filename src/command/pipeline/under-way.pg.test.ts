/** What an `execute` leaves under way fails its command, whether it is the command itself, a child, or an item of a bulk. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { accounts } from '../../../test/command/bank.ts'
import { commandSetup, gate, heard } from '../../../test/command/command-setup.ts'
import type { Queryable, Tx } from '../../postgres/query/database.ts'
import { bulk } from '../bulk.ts'
import { command, type Command } from '../model/command.ts'

const { bank, commandsWith, newAccount, newRequest } = await commandSetup()

type AnyCommand = Command<unknown, unknown>

const ways = {
  ours: (tx: Tx): Queryable => tx,
  native: (tx: Tx): Queryable => tx.native as Queryable,
}
const note = async (to: Queryable, account: string, requestId = ''): Promise<unknown> =>
  await to.query(`insert into ledger (principal, request_id, account, amount, lucky) values ('ann', $1, $2, 0, 0)`, [
    requestId,
    account,
  ])

const input = z.object({ account: z.string(), way: z.enum(['ours', 'native']) })
const hasty = command('Hasty', {
  input,
  execute: async (tx, { account, way }, { requestId }) => {
    await note(tx, account, requestId)
    note(ways[way](tx), account, requestId).catch(() => undefined)
  },
})
const parent = command('Parent', {
  input,
  plan: async (given, { child }) => ({ ...given, hasty: await child(hasty, given) }),
  execute: async (tx, plan, { run, requestId }) => {
    await run(plan.hasty)
    await note(tx, plan.account, requestId)
  },
})
const hastyAll = bulk('HastyAll', hasty)

test.each(
  (['ours', 'native'] as const).flatMap((way) => [
    ['a command', way, hasty as AnyCommand, (each: z.input<typeof input>): unknown => each] as const,
    ['a child', way, parent as AnyCommand, (each: z.input<typeof input>): unknown => each] as const,
    ['an item of a bulk', way, hastyAll as AnyCommand, (each: z.input<typeof input>): unknown => [{ input: each }]] as const,
  ]),
)(
  '%s that leaves a statement under way (%s) is rolled back with the whole, and a repeat is free to try',
  async (_who, way, what, ask) => {
    const requestId = newRequest()
    const asked = { principal: 'ann', requestId, input: ask({ account: newAccount(), way }) }
    const refused = {
      code: 'NOT_A_TRANSACTION',
      message: expect.stringMatching(/^Hasty returned while insert into ledger.*under way/),
    }
    for (const _attempt of [1, 2]) await expect(commandsWith().run(what, asked)).rejects.toMatchObject(refused)
    expect(await bank.effects(requestId)).toBe(0)
  },
)

test('an event that a child emits after its end rolls back the whole while that can be, and is told in any case', async () => {
  const [leave, emitted] = [gate(), gate()]
  const child = command('Child', {
    input: z.object({ account: z.string() }),
    execute: async (tx, { account }, { emit, requestId }) => {
      await note(tx, account, requestId)
      leave.opened
        .then(() => emit(accounts.BalanceChanged, account, { balance: 1 }))
        .catch(() => undefined)
        .finally(emitted.open)
    },
  })
  const whole = command('Whole', {
    input: z.object({ account: z.string() }),
    plan: async (given, { child: plan }) => ({ child: await plan(child, given) }),
    execute: async (_tx, plan, { run }) => {
      await run(plan.child)
      leave.open()
      await emitted.opened
    },
  })
  const { signals, all } = heard('transaction.used-after-end')
  const requestId = newRequest()
  const asked = { principal: 'ann', requestId, input: { account: newAccount() } }
  await expect(commandsWith({ signals }).run(whole, asked)).rejects.toThrow(/^Child returned while Child emitted BalanceChanged/)
  await nextTurn()
  expect(all.map(({ what }) => what)).toEqual(['Child emitted BalanceChanged'])
  expect(await bank.effects(requestId)).toBe(0)
})
