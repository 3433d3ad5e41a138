/**
 * A plan or a load that fails says nothing about a request that has committed: the marker is asked first.
 */
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { commandSetup, gate, heard } from '../../../test/command/command-setup.ts'
import { errorMessage, WaybillError } from '../../core/errors.ts'
import type { Database } from '../../postgres/query/database.ts'
import { command, type Command } from '../model/command.ts'
import { memoryCache } from '../cache/memory.ts'
import { reject, versionConflict } from '../model/rejection.ts'

const { db, bank, commandsWith, newAccount, newRequest } = await commandSetup()

type Step = 'load' | 'plan'
type Complaint = 'rejects' | 'throws'

interface Withdraw {
  readonly step: Step
  readonly complaint: Complaint
  readonly storeRejections?: boolean
  /** Runs inside the transaction, after the effect. */
  readonly after?: () => Promise<void>
}

/** Takes all that an account has, and will not do it when there is nothing to take. */
function withdrawCommand({ step, complaint, storeRejections = false, after }: Withdraw): Command<{ account: string }, number> {
  const check = (at: Step, balance: number): void => {
    if (at === step && balance === 0) throw complaint === 'rejects' ? reject('not-enough', { at }) : new Error('nothing is there')
  }
  return command('Withdraw', {
    input: z.object({ account: z.string() }),
    aggregate: ({ account }) => ({ type: 'account', id: account }),
    store: 'response',
    storeRejections,
    load: async (reader, { account }) => {
      const { rows } = await reader.query('select balance from account where id = $1', [account])
      const { balance } = (rows[0] as { balance: number } | undefined) ?? { balance: 0 }
      check('load', balance)
      return balance
    },
    plan: ({ account }, { loaded }) => {
      check('plan', loaded)
      return { account, amount: loaded }
    },
    execute: async (tx, { account, amount }, { principal, requestId }) => {
      await tx.query('update account set balance = balance - $2 where id = $1', [account, amount])
      await tx.query('insert into ledger (principal, request_id, account, amount, lucky) values ($1, $2, $3, $4, 0)', [
        principal,
        requestId ?? 'none',
        account,
        -amount,
      ])
      await after?.()
      return amount
    },
  })
}

async function fill(account: string, balance: number): Promise<void> {
  await db.query('insert into account (id, balance) values ($1, $2) on conflict (id) do update set balance = excluded.balance', [
    account,
    balance,
  ])
}

async function newWithdrawal(balance = 5) {
  const account = newAccount()
  await fill(account, balance)
  return { principal: 'ann', requestId: newRequest(), input: { account } }
}

async function markers(requestId: string): Promise<number> {
  const { rows } = await db.query('select count(*)::int as n from waybill.command_marker where request_id = $1', [requestId])
  return (rows[0] as { n: number }).n
}

const cases = (['load', 'plan'] as const).flatMap((step) =>
  (['rejects', 'throws'] as const).flatMap((complaint) =>
    [false, true].flatMap((cached) => [false, true].map((storeRejections) => ({ step, complaint, cached, storeRejections }))),
  ),
)

describe.each(cases)(
  'a $step that $complaint (cache: $cached, rejections kept: $storeRejections)',
  ({ step, complaint, cached, storeRejections }) => {
    /** Each with a cache of its own, which knows nothing of the others. */
    const newCommands = (options = {}) =>
      commandsWith({ markerLockMs: 50, ...(cached ? { cache: memoryCache() } : {}), ...options })
    const complains = async (outcome: Promise<unknown>): Promise<void> => {
      if (complaint === 'throws') await expect(outcome).rejects.toThrow('nothing is there')
      else expect(await outcome).toEqual({ status: 'rejected', reason: 'not-enough', details: { at: step }, replayed: false })
    }

    test('hides no run that has committed', async () => {
      const withdraw = withdrawCommand({ step, complaint, storeRejections })
      const request = await newWithdrawal()
      expect(await newCommands().run(withdraw, request)).toMatchObject({ status: 'executed', response: 5 })
      const later = newCommands()
      expect(await later.run(withdraw, request)).toMatchObject({ status: 'replayed', response: 5, from: 'marker' })
      expect(await later.run(withdraw, request)).toMatchObject({ status: 'replayed', response: 5 })
      await fill(request.input.account, 8)
      const other = { ...request, input: { account: newAccount() } }
      expect(await newCommands().run(withdraw, other)).toMatchObject({ code: 'KEY_REUSED' })
      expect(await bank.effects(request.requestId)).toBe(1)
    })

    test('hides no run that is under way, and learns its end', async () => {
      const entered = gate()
      const leave = gate()
      const withdraw = withdrawCommand({
        step,
        complaint,
        storeRejections,
        after: async () => (entered.open(), await leave.opened),
      })
      const request = await newWithdrawal()
      const first = newCommands().run(withdraw, request)
      await entered.opened
      const emptied = withoutMoney(db)
      const [hasty] = await Promise.allSettled([newCommands({ db: emptied }).run(withdraw, request)])
      const patient = newCommands({ db: emptied }).run(withdraw, { ...request, waitForWinnerMs: 60_000 })
      leave.open()
      const [won, waited] = await Promise.allSettled([first, patient])
      expect(hasty).toMatchObject({ value: { code: 'IN_PROGRESS' } })
      expect(won).toMatchObject({ value: { status: 'executed' } })
      expect(waited).toMatchObject({ value: { status: 'replayed', response: 5 } })
      expect(await bank.effects(request.requestId)).toBe(1)
    })

    test('after a run that was rolled back has the last word', async () => {
      const entered = gate()
      const leave = gate()
      const withdraw = withdrawCommand({
        step,
        complaint,
        storeRejections,
        after: async () => {
          entered.open()
          await leave.opened
          throw new Error('the disk of the caller is full')
        },
      })
      const request = await newWithdrawal()
      const first = newCommands()
        .run(withdraw, request)
        .catch((error: unknown) => error)
      await entered.opened
      const patient = newCommands({ db: withoutMoney(db) }).run(withdraw, { ...request, waitForWinnerMs: 60_000 })
      leave.open()
      await complains(patient)
      expect(await first).toMatchObject({ message: 'the disk of the caller is full' })
      expect(await bank.effects(request.requestId)).toBe(0)
    })

    test('is the answer to a new request, and is kept only if rejections are', async () => {
      const withdraw = withdrawCommand({ step, complaint, storeRejections })
      const request = await newWithdrawal(0)
      const commands = newCommands()
      await complains(commands.run(withdraw, request))
      const isKept = storeRejections && complaint === 'rejects'
      expect(await markers(request.requestId)).toBe(isKept ? 1 : 0)
      await fill(request.input.account, 5)
      for (const each of [commands, newCommands()])
        expect(await each.run(withdraw, request)).toMatchObject(
          isKept ? { status: 'rejected', replayed: true } : { status: each === commands ? 'executed' : 'replayed', response: 5 },
        )
      expect(await bank.effects(request.requestId)).toBe(isKept ? 0 : 1)
    })

    test('goes into no cache without a COMMIT', async () => {
      const completed: string[] = []
      const cache = memoryCache()
      const watched = { ...cache, complete: async (...[key]: Parameters<typeof cache.complete>) => void completed.push(key) }
      const neverCommits: Database = {
        ...db,
        attempt: (options, work) =>
          db.attempt(options, async (tx) => {
            const result = await work(tx)
            const text = 'select count(*)::int as n from waybill.command_marker where request_id = $1'
            const { rows } = await tx.query(text, [request.requestId])
            if ((rows[0] as { n: number }).n > 0) throw new Error('refused at COMMIT')
            return result
          }),
      }
      const withdraw = withdrawCommand({ step, complaint, storeRejections })
      const request = await newWithdrawal(0)
      const outcome = commandsWith({ db: neverCommits, cache: watched }).run(withdraw, request)
      const ended = await outcome.then(({ status }) => status, errorMessage)
      expect(ended).toBe(complaint === 'throws' ? 'nothing is there' : storeRejections ? 'refused at COMMIT' : 'rejected')
      expect(completed).toEqual([])
      expect(await markers(request.requestId)).toBe(0)
    })
  },
)

/** A database in which accounts look empty to a load. */
function withoutMoney(given: Database): Database {
  return {
    ...given,
    attempt: (options, work) =>
      given.attempt(options, (tx) => {
        const query = tx.query.bind(tx)
        Object.assign(tx, {
          query: async (text: string, values?: never) =>
            text.includes('select balance') ? { rows: [], rowCount: 0 } : await query(text, values),
        })
        return work(tx)
      }),
  }
}

test('an error of a plan that looks like one of the database starts no other attempt', async () => {
  const { signals, all } = heard('command.retried')
  const commands = commandsWith({ signals })
  const errors: readonly Error[] = [versionConflict('The account'), Object.assign(new Error('again'), { code: '40001' })]
  for (const [index, error] of errors.entries()) {
    const stubborn = command(`Stubborn${index}`, {
      input: z.object({}),
      plan: () => {
        throw error
      },
      execute: async () => ({}),
    })
    await expect(commands.run(stubborn, { principal: 'ann', requestId: newRequest(), input: {} })).rejects.toBe(error)
  }
  expect(all).toEqual([])
})

test('without a request id there is no marker to ask, and a rejection is what it is', async () => {
  const withdraw = withdrawCommand({ step: 'plan', complaint: 'rejects', storeRejections: true })
  const { principal, input } = await newWithdrawal(0)
  expect(await commandsWith({ requestId: 'optional' }).run(withdraw, { principal, input })).toMatchObject({
    status: 'rejected',
    replayed: false,
  })
})

test('an input that does not fit is an outcome while it is planned, and a defect once it is executed', async () => {
  const invalid = new WaybillError('INVALID_INPUT', 'It does not fit.')
  const failing = (step: 'plan' | 'execute') =>
    command(`Failing-${step}`, {
      input: z.object({}),
      plan: () => {
        if (step === 'plan') throw invalid
      },
      execute: () => Promise.reject(invalid),
    })
  const commands = commandsWith({ requestId: 'optional' })
  const [planned, executed] = [failing('plan'), failing('execute')]
  for (const requestId of [newRequest(), undefined]) {
    const request = { principal: 'ann', requestId, input: {} }
    expect(await commands.run(planned, request)).toMatchObject({ status: 'failed', code: 'INVALID_INPUT', cause: invalid })
    await expect(commands.run(executed, request)).rejects.toBe(invalid)
  }
})

test.each(['none', 'this process'] as const)(
  'an input that is valid no more says nothing about a request that has committed (cache: %s)',
  async (cache) => {
    const commands = commandsWith(cache === 'none' ? {} : { cache: memoryCache() })
    let isPast = false
    const order = command('Order', {
      input: z.object({ at: z.string().refine(() => !isPast, 'is over') }),
      aggregate: (input) => ({ type: 'order', id: input.at }),
      execute: async () => ({ ordered: true }),
    })
    const request = { principal: 'ann', requestId: newRequest(), input: { at: 'noon' } }
    expect(await commands.run(order, request)).toMatchObject({ status: 'executed' })
    isPast = true
    expect(await commands.run(order, request)).not.toMatchObject({ code: 'INVALID_INPUT' })
    expect(await commands.run(order, { ...request, input: { at: 'one' } })).toMatchObject({ code: 'KEY_REUSED' })
    expect(await commands.run(order, { ...request, requestId: newRequest() })).toMatchObject({
      status: 'failed',
      code: 'INVALID_INPUT',
      retryable: false,
    })
    // Nothing was kept of the refused one.
    isPast = false
    expect(await commands.run(order, { ...request, requestId: newRequest() })).toMatchObject({ status: 'executed' })
  },
)
