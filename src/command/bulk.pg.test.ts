import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { accounts } from '../../test/command/bank.ts'
import { commandSetup, gate, heard } from '../../test/command/command-setup.ts'
import type { Tx } from '../postgres/query/database.ts'
import { bulk } from './bulk.ts'
import { command } from './model/command.ts'
import { fingerprint } from './pipeline/fingerprint.ts'
import { reject } from './model/rejection.ts'

const { db, bank, commandsWith, newAccount, newRequest } = await commandSetup()

describe('children', () => {
  const grant = command('Grant', {
    input: z.object({ account: z.string(), amount: z.number().int() }),
    aggregate: ({ account }) => ({ type: 'account', id: account }),
    execute: async (tx, plan, { principal, requestId, metadata, aggregate, emit }) => {
      if (plan.amount < 0) throw reject('negative')
      await tx.query('insert into ledger (principal, request_id, account, amount, lucky) values ($1, $2, $3, $4, $5)', [
        principal,
        requestId ?? '',
        plan.account,
        plan.amount,
        (metadata as { place: number } | undefined)?.place ?? 0,
      ])
      emit(accounts.BalanceChanged, aggregate.id, { balance: plan.amount })
      return { account: plan.account, metadata }
    },
  })

  test('answer what their own schema of the response makes of it, and fail the whole where it refuses', async () => {
    const show = command('Show', {
      input: z.object({ balance: z.number() }),
      response: z.object({ balance: z.number().min(0) }),
      execute: async (_tx, plan) => ({ balance: plan.balance, secret: 'row' }),
    })
    const showAll = bulk('ShowAll', show)
    const request = (balance: number) => ({ principal: 'ann', requestId: newRequest(), input: [{ input: { balance } }] })
    expect(await commandsWith().run(showAll, request(5))).toMatchObject({ status: 'executed', response: [{ balance: 5 }] })
    expect(JSON.stringify(await commandsWith().run(showAll, request(5)))).not.toContain('secret')
    await expect(commandsWith().run(showAll, request(-5))).rejects.toThrow(/Show: the response/)
  })

  test("run in their parent's transaction under its marker, and only if it planned them, once each", async () => {
    const other = await new Promise<unknown>((done) => {
      const leak = command('Leak', {
        input: z.object({}),
        plan: async (_input, { child }) => done(await child(grant, { account: 'a', amount: 1 })),
        execute: async () => ({}),
      })
      void commandsWith().run(leak, { principal: 'ann', requestId: newRequest(), input: {} })
    })
    const parent = command('Parent', {
      input: z.object({ accounts: z.array(z.string()), how: z.enum(['well', 'twice', 'foreign']) }),
      plan: async ({ accounts: all, how }, { child }) => ({
        how,
        grants: await Promise.all(all.map((account) => child(grant, { account, amount: 2 }))),
      }),
      execute: async (_tx, { grants, how }, { run }) => {
        for (const each of grants) await run(each)
        const [first] = grants
        if (how === 'twice' && first !== undefined) await run(first)
        if (how === 'foreign') await run(other as typeof first & object)
        return { granted: grants.length }
      },
    })
    const commands = commandsWith()
    const names = [newAccount(), newAccount()]
    const request = { principal: 'ann', requestId: newRequest() }
    for (const how of ['twice', 'foreign'] as const)
      await expect(commands.run(parent, { ...request, input: { accounts: names, how } })).rejects.toMatchObject({
        code: 'INVALID_OPTION',
      })
    expect(await bank.effects(request.requestId)).toBe(0)
    expect(await commands.run(parent, { ...request, input: { accounts: names, how: 'well' } })).toMatchObject({
      status: 'executed',
      response: { granted: 2 },
    })
    expect(await commands.run(parent, { ...request, input: { accounts: names, how: 'well' } })).toMatchObject({
      code: 'ALREADY_COMMITTED',
    })
    expect(await bank.effects(request.requestId)).toBe(2)
  })

  const note = (tx: Tx, account: string, requestId = ''): Promise<unknown> =>
    tx.query(`insert into ledger (principal, request_id, account, amount, lucky) values ('ann', $1, $2, 0, 0)`, [
      requestId,
      account,
    ])
  const events = async (account: string): Promise<number> =>
    (await db.query('select from waybill.outbox where aggregate_id = $1', [account])).rowCount

  test('that are rejected take the whole with them, also where their parent goes on', async () => {
    const bonus = command('Bonus', {
      input: z.object({ account: z.string() }),
      execute: async (tx, { account }, { emit, requestId }) => {
        await note(tx, account, requestId)
        emit(accounts.BalanceChanged, account, { balance: 1 })
        throw reject('full')
      },
    })
    const parent = command('Lenient', {
      input: z.object({ account: z.string() }),
      plan: async ({ account }, { child }) => ({ account, bonus: await child(bonus, { account }) }),
      execute: async (tx, plan, { run, emit, requestId }) => {
        await run(plan.bonus).catch(() => undefined)
        await note(tx, plan.account, requestId)
        emit(accounts.BalanceChanged, plan.account, { balance: 2 })
      },
    })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount() } }
    expect(await commandsWith().run(parent, request)).toMatchObject({ status: 'rejected', reason: 'full' })
    expect([await bank.effects(request.requestId), await events(request.input.account)]).toEqual([0, 0])
  })

  test.each(['ours', 'native'] as const)(
    'that are still under way when another is rejected leave nothing beside the rejection that is kept (%s)',
    async (way) => {
      const begun = gate()
      const ended = Promise.withResolvers<unknown>()
      const busy = command('Busy', {
        input: z.object({ account: z.string() }),
        execute: async (tx, { account }, { requestId }) => {
          try {
            for (;;) {
              await note(way === 'ours' ? tx : (tx.native as Tx), account, requestId)
              begun.open()
            }
          } catch (error) {
            ended.resolve(error)
          }
        },
      })
      const refusing = command('Refusing', {
        input: z.object({}),
        execute: async () => {
          await begun.opened
          throw reject('full')
        },
      })
      const parent = command('Both', {
        input: z.object({ account: z.string() }),
        storeRejections: true,
        plan: async (input, { child }) => [await child(busy, input), await child(refusing, {})],
        execute: async (_tx, planned, { run }) => void (await Promise.all(planned.map((each) => run<unknown>(each)))),
      })
      const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount() } }
      expect(await commandsWith().run(parent, request)).toMatchObject({ status: 'rejected', replayed: false })
      expect(await ended.promise).toMatchObject({ code: 'NOT_A_TRANSACTION' })
      expect(await commandsWith().run(parent, request)).toMatchObject({ status: 'rejected', replayed: true })
      expect(await bank.effects(request.requestId)).toBe(0)
    },
  )

  test('that are not awaited roll the whole back, and what comes after its end is refused', async () => {
    const parent = command('Hasty', {
      input: z.object({ account: z.string() }),
      plan: async ({ account }, { child }) => ({ grant: await child(grant, { account, amount: 1 }) }),
      execute: async (_tx, plan, { run }) => void run(plan.grant),
    })
    const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount() } }
    await expect(commandsWith().run(parent, request)).rejects.toThrow(/Hasty returned before its child Grant ended/)
    expect([await bank.effects(request.requestId), await events(request.input.account)]).toEqual([0, 0])

    const leave = gate()
    const late: Promise<unknown>[] = []
    const forgetful = command('Forgetful', {
      input: z.object({ account: z.string() }),
      plan: async ({ account }, { child }) => ({ account, grant: await child(grant, { account, amount: 1 }) }),
      execute: async (_tx, plan, { emit, run }) => {
        late.push(leave.opened.then(() => emit(accounts.BalanceChanged, plan.account, { balance: 1 })))
        late.push(leave.opened.then(() => run(plan.grant)))
      },
    })
    await commandsWith().run(forgetful, { ...request, requestId: newRequest() })
    leave.open()
    for (const each of late) await expect(each).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  })

  test('as a bulk keep the order and the metadata of the caller, all or none, and bulks in any order do not deadlock', async () => {
    const grants = bulk('Grants', grant, { store: 'response' })
    const { signals, all } = heard('command.retried')
    const commands = commandsWith({ signals })
    const names = Array.from({ length: 12 }, newAccount)
    const items = (order: readonly string[]) =>
      order.map((account, place) => ({ input: { account, amount: 1 }, metadata: { place, source: 'dungeon' } }))
    const requestId = newRequest()
    const outcome = await commands.run(grants, { principal: 'ann', requestId, input: items(names) })
    expect(outcome).toMatchObject({
      status: 'executed',
      response: names.map((account, place) => ({ account, metadata: { place, source: 'dungeon' } })),
    })
    const rows = (await bank.ledger()).filter((row) => row.request_id === requestId)
    expect(rows.map(({ account, lucky }) => [account, lucky])).toEqual(names.map((account, place) => [account, place]))

    const broken = [...items(names), { input: { account: newAccount(), amount: -1 } }]
    const second = newRequest()
    expect(await commands.run(grants, { principal: 'ann', requestId: second, input: broken })).toMatchObject({
      status: 'rejected',
      reason: 'negative',
    })
    expect(await bank.effects(second)).toBe(0)

    const invalid = [...items(names), { input: { account: newAccount(), amount: 0.5 } }]
    expect(await commands.run(grants, { principal: 'ann', requestId: newRequest(), input: invalid })).toMatchObject({
      status: 'failed',
      code: 'INVALID_INPUT',
      message: expect.stringContaining('Grant: the input does not fit its schema'),
    })

    await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        commands.run(grants, { principal: 'ann', requestId: newRequest(), input: items(n % 2 ? names : names.toReversed()) }),
      ),
    )
    expect(all).toEqual([])
  })
})

describe('a bulk', () => {
  const send = command('Send', {
    input: z.object({ to: z.string(), sentAt: z.number() }),
    fingerprint: ({ to }) => ({ to }),
    execute: async (_tx, { to }) => ({ to }),
  })
  const ask = (requestId: string, input: readonly { readonly input: { to: string; sentAt: number }; metadata?: unknown }[]) => ({
    principal: 'ann',
    requestId,
    input,
  })

  test("is the same request as its command's own fingerprint says, item by item, with their metadata and in their order", async () => {
    const commands = commandsWith()
    const sendAll = bulk('SendAll', send, { store: 'response' })
    const requestId = newRequest()
    const [first, second] = [{ input: { to: 'ann', sentAt: 1 } }, { input: { to: 'bob', sentAt: 1 }, metadata: 7 }]
    expect(await commands.run(sendAll, ask(requestId, [first, second]))).toMatchObject({ status: 'executed' })
    const later = [{ input: { to: 'ann', sentAt: 2 } }, { input: { to: 'bob', sentAt: 3 }, metadata: 7 }]
    expect(await commands.run(sendAll, ask(requestId, later))).toMatchObject({
      status: 'replayed',
      response: [{ to: 'ann' }, { to: 'bob' }],
    })
    const others = [[second, first], [first], [first, { ...second, metadata: 8 }], [first, { ...second, input: first.input }]]
    for (const other of others) expect(await commands.run(sendAll, ask(requestId, other))).toMatchObject({ code: 'KEY_REUSED' })
  })

  test('is the same request by the whole of its input where its command says nothing, as markers that are kept have it', async () => {
    const give = command('Give', { input: z.object({ to: z.string(), sentAt: z.number() }), execute: async () => ({}) })
    const giveAll = bulk('GiveAll', give)
    const requestId = newRequest()
    const input = [{ input: { to: 'ann', sentAt: 1 }, metadata: { place: 1 } }, { input: { sentAt: 2, to: 'bob' } }]
    expect(await commandsWith().run(giveAll, ask(requestId, input))).toMatchObject({ status: 'executed' })
    const { rows } = await db.query(
      `select encode(fingerprint, 'hex') as fingerprint from waybill.command_marker where request_id = $1`,
      [requestId],
    )
    expect(rows).toEqual([{ fingerprint: fingerprint('GiveAll', input) }])
  })

  test('is INVALID_INPUT where the fingerprint of its command cannot take an item that does not fit', async () => {
    const nested = command('Nested', {
      input: z.object({ to: z.object({ name: z.string() }) }),
      fingerprint: ({ to }) => to.name,
      execute: async () => ({}),
    })
    const nestedAll = bulk('NestedAll', nested)
    for (const input of [[{ input: {} }], [null], 'all'])
      expect(
        await commandsWith().run(nestedAll, { principal: 'ann', requestId: newRequest(), input: input as never }),
      ).toMatchObject({ status: 'failed', code: 'INVALID_INPUT' })
  })
})
