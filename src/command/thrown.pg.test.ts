/**
 * A call that throws is told like any other end: by a signal, a metric and a log entry, once, and its error stays what it was.
 */
import { expect, test } from 'vitest'
import { z } from 'zod'
import { accounts } from '../../test/command/bank.ts'
import { commandSetup } from '../../test/command/command-setup.ts'
import { WaybillError } from '../core/errors.ts'
import { createSignals, type SignalName } from '../core/signals.ts'
import { logSignals, type LogEntry } from '../telemetry/log-signals.ts'
import { createMetrics } from '../telemetry/metrics.ts'
import { command, type Command } from './model/command.ts'
import { memoryCache } from './cache/memory.ts'
import { reject } from './model/rejection.ts'

const { database, commandsWith, newRequest, newAccount } = await commandSetup()

type Step = 'fingerprint' | 'aggregate' | 'load' | 'plan' | 'execute' | 'nowhere'

/** A command that fails in one of its steps. */
function failing(step: Step, error: unknown): Command<{ account: string }, void> {
  const check = (at: Step): void => {
    if (at === step) throw error
  }
  return command('Pay', {
    input: z.object({ account: z.string() }),
    fingerprint: (input) => (check('fingerprint'), input),
    aggregate: ({ account }) => (check('aggregate'), { type: accounts.aggregateType, id: account }),
    load: async () => check('load'),
    plan: (input) => (check('plan'), input),
    execute: async () => check('execute'),
  })
}

function observed() {
  const signals = createSignals()
  const ends: { readonly name: SignalName; readonly event: unknown }[] = []
  signals.onAny((event, name) => void (name.startsWith('command.') && ends.push({ name, event })))
  const metrics = createMetrics({ signals })
  const entries: LogEntry[] = []
  logSignals({ signals, log: (entry) => void entries.push(entry) })
  const outcomes = () =>
    metrics
      .text()
      .split('\n')
      .filter((line) => line.startsWith('waybill_command_outcomes_total'))
  return { signals, ends, entries, outcomes }
}

const request = () => ({ principal: 'ann', requestId: newRequest(), input: { account: newAccount() } })

test.each(['fingerprint', 'aggregate', 'load', 'plan', 'execute'] as const)(
  'what %s throws reaches the caller as it is, and is told once by signal, metric and log',
  async (step) => {
    const { signals, ends, entries, outcomes } = observed()
    const error = new TypeError('cannot read the card of ann')
    const thrown = await commandsWith({ signals })
      .run(failing(step, error), request())
      .catch((each: unknown) => each)
    expect(thrown).toBe(error)
    expect(ends).toEqual([{ name: 'command.threw', event: { command: 'Pay', error } }])
    expect(outcomes()).toEqual(['waybill_command_outcomes_total{command="Pay",outcome="error"} 1'])
    expect(entries).toEqual([
      {
        level: 'error',
        signal: 'command.threw',
        message: 'A call of a command threw; it committed nothing.',
        fields: { command: 'Pay', error_type: 'TypeError' },
      },
    ])
  },
)

test('what adding the events throws is told too', async () => {
  const { signals, ends, outcomes } = observed()
  const pay = command('Pay', {
    input: z.object({ account: z.string() }),
    execute: async (_tx, { account }, { emit }) => emit(accounts.BalanceChanged, account, { balance: 'much' as never }),
  })
  await expect(commandsWith({ signals }).run(pay, request())).rejects.toMatchObject({ name: 'WaybillError' })
  expect(ends.map(({ name }) => name)).toEqual(['command.threw'])
  expect(outcomes()).toEqual(['waybill_command_outcomes_total{command="Pay",outcome="error"} 1'])
})

test('a rejection is an outcome and no error', async () => {
  const { signals, ends, entries, outcomes } = observed()
  const outcome = await commandsWith({ signals }).run(failing('execute', reject('not-enough')), request())
  expect(outcome).toMatchObject({ status: 'rejected' })
  expect(ends.map(({ name }) => name)).toEqual(['command.rejected'])
  expect(outcomes()).toEqual(['waybill_command_outcomes_total{command="Pay",outcome="rejected"} 1'])
  expect(entries).toEqual([])
})

/** What fetch says when nobody listens there. */
const refusedCall = () => new TypeError('fetch failed', { cause: Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }) })

test.each(['aggregate', 'plan'] as const)(
  'what %s throws is its own although it looks like a lost connection, with a request id or without',
  async (step) => {
    for (const cache of [undefined, memoryCache()])
      for (const requestId of [newRequest(), undefined]) {
        const { signals, ends } = observed()
        const error = refusedCall()
        const asked = commandsWith({ signals, requestId: 'optional', cache }).run(failing(step, error), {
          ...request(),
          requestId,
        })
        await expect(asked).rejects.toBe(error)
        expect(ends.at(-1)).toEqual({ name: 'command.threw', event: { command: 'Pay', error } })
      }
  },
)

test.each(['load', 'execute'] as const)(
  'what %s throws and looks like a lost connection is UNAVAILABLE: nothing is changed, and the same request may be sent again',
  async (step) => {
    const ask = request()
    const error = refusedCall()
    const outcome = await commandsWith().run(failing(step, error), ask)
    expect(outcome).toMatchObject({ status: 'failed', code: 'UNAVAILABLE', retryable: true, cause: error })
    expect((outcome as { message: string }).message).not.toContain('database')
    expect(await commandsWith().run(failing('nowhere', error), ask)).toMatchObject({ status: 'executed' })
  },
)

test('a plan whose error looks like a lost connection costs the database none', async () => {
  let removed = 0
  database.pool.on('remove', () => void (removed += 1))
  await expect(commandsWith().run(failing('plan', refusedCall()), request())).rejects.toThrow('fetch failed')
  await database.pool.query('select')
  expect(removed).toBe(0)
})

test.each([
  ['as it is', (error: unknown): unknown => error],
  ['wrapped by that', (cause: unknown): unknown => new Error('the child cannot be planned', { cause })],
])(
  'what the load of a child throws and looks like a lost connection is UNAVAILABLE, although it came through a plan, %s',
  async (_, through) => {
    const error = refusedCall()
    const child = failing('load', error)
    const parent = command('Parent', {
      input: z.object({ account: z.string() }),
      plan: async (input, context) =>
        await context.child(child, input).catch((each: unknown) => {
          throw through(each)
        }),
      execute: async () => undefined,
    })
    const outcome = await commandsWith().run(parent, request())
    expect(outcome).toMatchObject({ status: 'failed', code: 'UNAVAILABLE' })
    const { cause } = outcome as { cause?: { cause?: unknown } }
    expect([cause, cause?.cause]).toContain(error)
  },
)

test('a plan that says itself that something is UNAVAILABLE is taken at its word', async () => {
  const error = new WaybillError('UNAVAILABLE', 'The projection is being rebuilt.')
  expect(await commandsWith().run(failing('plan', error), request())).toMatchObject({ code: 'UNAVAILABLE', cause: error })
})
