import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { depositCommand } from '../../../test/command/bank.ts'
import { commandSetup } from '../../../test/command/command-setup.ts'
import { bulk } from '../bulk.ts'
import { command } from '../model/command.ts'
import { reject, versionConflict } from '../model/rejection.ts'

const { db, bank, commandsWith, newAccount, newRequest } = await commandSetup()

describe('the transaction', () => {
  test('begins with the marker and the lock, then does the work, then adds the events and keeps the response', async () => {
    const statements: string[] = []
    const watched: typeof db = {
      ...db,
      attempt: (options, work) =>
        db.attempt(options, (tx) => {
          const query = tx.query.bind(tx)
          // The adapter knows its own object, so the log goes into it instead of around it.
          Object.assign(tx, { query: (text: string, values?: never) => (statements.push(text), query(text, values)) })
          return work(tx)
        }),
    }
    const commands = commandsWith({ db: watched })
    await commands.run(depositCommand({ store: 'response' }), {
      principal: 'ann',
      requestId: newRequest(),
      input: { account: newAccount(), amount: 5 },
    })
    const order = [
      /claim_command/,
      /select balance/,
      /insert into account/,
      /insert into ledger/,
      /add_event/,
      /select "waybill"."answer_command"/,
    ]
    expect(statements).toHaveLength(order.length)
    order.forEach((pattern, index) => expect(statements[index]).toMatch(pattern))
  })

  test.each(['read committed', 'repeatable read', 'serializable'] as const)(
    'does it once under %s, repeats in parallel included',
    async (isolation) => {
      const commands = commandsWith({ isolation, markerLockMs: 2_000, waitForWinnerMs: 60_000 })
      const deposit = depositCommand({ store: 'response' })
      const account = newAccount()
      const requests = Array.from({ length: 4 }, () => ({
        principal: 'ann',
        requestId: newRequest(),
        input: { account, amount: 1 },
      }))
      const outcomes = await Promise.all([...requests, ...requests].map((request) => commands.run(deposit, request)))
      expect(outcomes.map(({ status }) => status).toSorted()).toEqual([
        ...Array<string>(4).fill('executed'),
        ...Array<string>(4).fill('replayed'),
      ])
      expect(await bank.balance(account)).toBe(4)
    },
  )

  test.each(['read committed', 'repeatable read', 'serializable'] as const)(
    'holds the aggregate under %s, for commands that emit nothing too',
    async (isolation) => {
      const both = Promise.withResolvers<void>()
      let begun = 0
      const watched: typeof db = {
        ...db,
        attempt: (options, work) =>
          db.attempt(options, (tx) => {
            if ((begun += 1) === 2) both.resolve()
            return work(tx)
          }),
      }
      const account = newAccount()
      const withdraw = command('WithdrawSilently', {
        input: z.object({}),
        aggregate: () => ({ type: 'silent', id: account }),
        execute: async (tx) => {
          // The other one has its snapshot by now, and waits for the aggregate.
          await both.promise
          const { rows } = await tx.query('select count(*)::int as count from withdrawn where account = $1', [account])
          if ((rows as { count: number }[])[0]?.count !== 0) throw reject('not-enough')
          await tx.query('insert into withdrawn (account) values ($1)', [account])
        },
      })
      await db.query('create table if not exists withdrawn (account text)')
      await db.query(`insert into waybill.aggregate_version (aggregate_type, aggregate_id, version) values ('silent', $1, 1)`, [
        account,
      ])
      const commands = commandsWith({ db: watched, isolation })
      const run = async (): Promise<string> =>
        (await commands.run(withdraw, { principal: 'ann', requestId: newRequest(), input: {} })).status
      expect((await Promise.all([run(), run()])).toSorted()).toEqual(['executed', 'rejected'])
    },
  )

  test('a load that writes is refused by the database', async () => {
    const sneaky = command('Sneaky', {
      input: z.object({}),
      load: async (reader) => void (await reader.query(`insert into account (id, balance) values ('sneaky', 1)`)),
      execute: async () => ({}),
    })
    await expect(commandsWith().run(sneaky, { principal: 'ann', requestId: newRequest(), input: {} })).rejects.toThrow(
      /read-only transaction/,
    )
    expect(await bank.balance('sneaky')).toBe(0)
  })

  test('a plan sees what was loaded and the time of the request, and execute sees the same time', async () => {
    const times: number[] = []
    const timed = command('Timed', {
      input: z.object({ account: z.string() }),
      load: async (reader, { account }) => (await reader.query('select $1::text as name', [account])).rows[0] as { name: string },
      plan: (_input, { loaded, now }) => (times.push(now.getTime()), { name: loaded.name }),
      execute: async (_tx, plan, { now, attempt }) => {
        times.push(now.getTime())
        if (attempt < 3) throw versionConflict('the row')
        return plan
      },
    })
    const outcome = await commandsWith().run(timed, { principal: 'ann', requestId: newRequest(), input: { account: 'x' } })
    expect(outcome).toMatchObject({ status: 'executed', response: { name: 'x' }, attempts: 3 })
    expect(new Set(times).size).toBe(1)
    expect(times).toHaveLength(4)
  })

  test('a plan is frozen: no attempt can leave traces in it', async () => {
    const vain = command('Vain', {
      input: z.object({}),
      plan: () => ({ items: [{ count: 1 }] }),
      execute: async (_tx, plan) => {
        const [item] = plan.items
        if (item !== undefined) item.count += 1
        return {}
      },
    })
    await expect(commandsWith().run(vain, { principal: 'ann', requestId: newRequest(), input: {} })).rejects.toThrow(TypeError)
  })

  test('an input is frozen as well, where the plan is another', async () => {
    const vain = command('Vain', {
      input: z.object({ lines: z.array(z.number()) }),
      plan: () => ({}),
      execute: async (_tx, _plan, { input }) => ({ paid: input.lines.shift() }),
    })
    const request = { principal: 'ann', requestId: newRequest(), input: { lines: [1, 2] } }
    await expect(commandsWith().run(vain, request)).rejects.toThrow(TypeError)
  })

  test.each(['input', 'plan', 'metadata'] as const)(
    'what is frozen on the outside alone is frozen to the bottom: %s',
    async (where) => {
      interface Steps {
        readonly steps: number[]
        readonly whole?: Steps
      }
      const frozenOutside = (): Steps => {
        const value: { steps: number[]; whole?: Steps } = { steps: [5] }
        // What holds itself is walked once.
        value.whole = value
        return Object.freeze(value)
      }
      const vain = command('Vain', {
        input: z.object({ steps: z.array(z.number()) }).readonly(),
        plan: frozenOutside,
        execute: async (_tx, plan, { input, metadata, attempt }) => {
          const { steps } = { input, plan, metadata: metadata as Steps }[where]
          const step = steps.pop()
          if (attempt === 1) throw versionConflict('the row')
          return { step }
        },
      })
      const parent = command('Parent', {
        input: z.object({}),
        plan: (_input, { child }) => child(vain, { steps: [5] }, { metadata: frozenOutside() }),
        execute: (_tx, planned, { run }) => run(planned),
      })
      const outcome = commandsWith().run(parent, { principal: 'ann', requestId: newRequest(), input: {} })
      await expect(outcome).rejects.toThrow(TypeError)
    },
  )

  test('the metadata of a child are frozen as well', async () => {
    const vain = command('Vain', {
      input: z.object({}),
      execute: async (_tx, _plan, { metadata, attempt }) => {
        const step = (metadata as number[]).pop()
        if (attempt === 1) throw versionConflict('the row')
        return { step }
      },
    })
    const parent = command('Parent', {
      input: z.object({}),
      plan: (_input, { child }) => child(vain, {}, { metadata: [5] }),
      execute: (_tx, planned, { run }) => run(planned),
    })
    const outcome = commandsWith().run(parent, { principal: 'ann', requestId: newRequest(), input: {} })
    await expect(outcome).rejects.toThrow(TypeError)
  })

  test('what one run does to its time is not seen by the next, nor by the next of a bulk', async () => {
    const days: number[] = []
    const later = command('Later', {
      input: z.object({}),
      plan: (_input, { now }) => ({ at: now.setUTCDate(1) }),
      execute: async (_tx, _plan, { now, attempt }) => {
        now.setUTCFullYear(now.getUTCFullYear() + 1)
        days.push(now.getTime())
        if (attempt < 2) throw versionConflict('the row')
        return {}
      },
    })
    const items = [1, 2, 3].map(() => ({ input: {} }))
    await commandsWith().run(bulk('LaterAll', later), { principal: 'ann', requestId: newRequest(), input: items })
    expect(days).toHaveLength(4)
    expect(new Set(days).size).toBe(1)
  })
})

test('load has the limits of the commands', async () => {
  const limits = `select current_setting('statement_timeout') || ' ' || current_setting('lock_timeout') as found`
  const look = command('Look', {
    input: z.object({}),
    load: async (reader) => (await reader.query(limits)).rows[0] as { found: string },
    plan: (_input, { loaded }) => loaded,
    execute: async (_tx, plan) => plan,
  })
  const commands = commandsWith({ statementTimeoutMs: 1_234, lockTimeoutMs: 4_321 })
  const outcome = await commands.run(look, { principal: 'ann', requestId: newRequest(), input: {} })
  expect(outcome).toMatchObject({ response: { found: '1234ms 4321ms' } })
})

test('an input that its fingerprint cannot take is invalid if its schema says so, and a mistake of the fingerprint if not', async () => {
  const dated = command('Dated', {
    input: z.object({ sentAt: z.string(), amount: z.number() }),
    fingerprint: ({ sentAt, ...rest }) => (sentAt.length, rest),
    execute: async () => ({}),
  })
  const run = (input: unknown) =>
    commandsWith().run(dated, { principal: 'ann', requestId: newRequest(), input: input as { sentAt: string; amount: number } })
  expect(await run(null)).toMatchObject({ status: 'failed', code: 'INVALID_INPUT' })
  const broken = command('Broken', {
    input: z.object({}),
    fingerprint: () => {
      throw new Error('no idea')
    },
    execute: async () => ({}),
  })
  const request = { principal: 'ann', requestId: newRequest(), input: {} }
  await expect(commandsWith().run(broken, request)).rejects.toThrow('no idea')
})
