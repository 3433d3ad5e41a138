/** Children are planned when their parent's plan returns, or the parent fails: none runs without its lock, and no error is unheard. */
import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { commandSetup, gate } from '../../../test/command/command-setup.ts'
import { command, type PlanContext } from '../model/command.ts'

const { commandsWith, newRequest } = await commandSetup()

const newAsk = <Input>(input: Input) => ({ principal: 'ann', requestId: newRequest(), input })

/** A child with an aggregate, that counts how often it ran. */
function kidCommand(load: () => Promise<unknown> = async () => undefined) {
  const ran: string[] = []
  const kid = command('Kid', {
    input: z.object({ id: z.string() }),
    aggregate: ({ id }) => ({ type: 'kid', id }),
    load,
    execute: async (_tx, { id }) => void ran.push(id),
  })
  return { kid, ran }
}

test('children whose inputs do not fit, planned at once, are one INVALID_INPUT, and no rejection without a handler', async () => {
  const unhandled: unknown[] = []
  const listen = (reason: unknown): void => void unhandled.push(reason)
  const late = gate()
  const kid = command('Kid', {
    input: z.object({ id: z.string(), isLate: z.boolean() }).refine(async ({ isLate }) => {
      if (isLate) await late.opened
      return false
    }, 'is never right'),
    execute: async () => undefined,
  })
  const parent = command('Parent', {
    input: z.object({}),
    plan: async (_input, { child }) => {
      const first = child(kid, { id: 'a', isLate: false })
      const second = child(kid, { id: 'b', isLate: true })
      return { first: await first, second: await second }
    },
    execute: async () => undefined,
  })
  process.on('unhandledRejection', listen)
  try {
    expect(await commandsWith().run(parent, newAsk({}))).toMatchObject({ status: 'failed', code: 'INVALID_INPUT' })
    late.open()
    await turn()
    await turn()
    expect(unhandled).toEqual([])
  } finally {
    process.off('unhandledRejection', listen)
  }
})

test('a plan that returns before its child is planned fails, and nothing is executed without its lock', async () => {
  const loaded = gate()
  const { kid, ran } = kidCommand(() => loaded.opened)
  const parent = command('Parent', {
    input: z.object({}),
    plan: (_input, { child }) => ({ late: child(kid, { id: 'k' }) }),
    execute: async (_tx, { late }, { run }) => run(await late),
  })
  const asked = commandsWith().run(parent, newAsk({}))
  await expect(asked.finally(loaded.open)).rejects.toMatchObject({
    code: 'INVALID_OPTION',
    message: expect.stringContaining('The plan of Parent returned before its child Kid was planned') as string,
  })
  expect(ran).toEqual([])
})

test('a child that fails in a plan fails the whole, whoever caught its error', async () => {
  const { kid } = kidCommand()
  const parent = command('Parent', {
    input: z.object({}),
    plan: async (_input, { child }) => {
      await child(kid, { id: 5 as unknown as string }).catch(() => undefined)
    },
    execute: async () => undefined,
  })
  expect(await commandsWith().run(parent, newAsk({}))).toMatchObject({ status: 'failed', code: 'INVALID_INPUT' })
})

test('a child cannot be planned once the plan has ended', async () => {
  const { kid, ran } = kidCommand()
  const parent = command('Parent', {
    input: z.object({}),
    plan: (_input, { child }): { readonly child: PlanContext<undefined>['child'] } => ({ child }),
    execute: async (_tx, { child }, { run }) => run(await child(kid, { id: 'k' })),
  })
  await expect(commandsWith().run(parent, newAsk({}))).rejects.toMatchObject({
    code: 'INVALID_OPTION',
    message: expect.stringContaining('Parent planned its child Kid after its plan had ended') as string,
  })
  expect(ran).toEqual([])
})
