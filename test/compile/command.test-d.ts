/**
 * Commands are typed from their schemas to their outcomes, and cannot be run but by `commands.run`.
 */
import { z } from 'zod'
import { bulk, command, state, stream, type Commands, type Outcome } from '../../src/index.ts'
import { sameType } from './same-type.ts'

declare const commands: Commands

const players = stream('player', { topic: 'player.events', events: { PlayerChanged: state(z.object({ gold: z.number() })) } })

const pay = command('Pay', {
  input: z.object({ playerId: z.string(), amount: z.string().transform(Number) }),
  aggregate: ({ playerId }) => ({ type: players.aggregateType, id: playerId }),
  load: async (db, { playerId }) => (await db.query('select 1', [playerId])).rowCount,
  plan: ({ amount }, { loaded, random }) => ({ total: amount + loaded, lucky: random.next() }),
  execute: async (tx, plan, { aggregate, emit, input }) => {
    sameType<typeof plan, { total: number; lucky: number }>()
    sameType<typeof input, { playerId: string; amount: number }>()
    sameType<typeof aggregate.version, bigint>()
    await tx.query('select 1')
    emit(players.PlayerChanged, input.playerId, { gold: plan.total })
    // @ts-expect-error -- data of another shape
    emit(players.PlayerChanged, input.playerId, { silver: 1 })
    return { paid: plan.total }
  },
})

// Without a plan, the input is the plan.
const greet = command('Greet', {
  input: z.object({ name: z.string() }),
  execute: async (_tx, { name }) => `hello ${name}`,
})

async function use(): Promise<void> {
  const outcome = await commands.run(pay, { principal: 'ann', requestId: '1', input: { playerId: 'ann', amount: '5' } })
  sameType<typeof outcome, Outcome<{ paid: number }>>()
  const greeting = await commands.run(greet, { principal: 'ann', requestId: '2', input: { name: 'Ann' } })
  if (greeting.status === 'executed') greeting.response.toUpperCase()
  const many = await commands.run(bulk('PayMany', pay), {
    principal: 'ann',
    requestId: '3',
    input: [{ input: { playerId: 'ann', amount: '5' }, metadata: { place: 1 } }],
  })
  sameType<typeof many, Outcome<readonly { paid: number }[]>>()
  // The set of codes is closed: a switch over it is complete.
  if (outcome.status === 'failed') {
    switch (outcome.code) {
      case 'INVALID_INPUT':
      case 'REQUEST_ID_MISSING':
      case 'IN_PROGRESS':
      case 'ALREADY_COMMITTED':
      case 'KEY_REUSED':
      case 'VERSION_CONFLICT':
      case 'PRECONDITION_FAILED':
      case 'OVERLOADED':
      case 'ABORTED':
      case 'UNAVAILABLE':
        break
      default:
        outcome.code satisfies never
    }
  }

  // @ts-expect-error -- the schema's output is not its input
  await commands.run(pay, { principal: 'ann', requestId: '1', input: { playerId: 'ann', amount: 5 } })
  // @ts-expect-error -- nobody asks
  await commands.run(pay, { requestId: '1', input: { playerId: 'ann', amount: '5' } })
  // @ts-expect-error -- what it is made of cannot be reached
  await pay.execute()
  // @ts-expect-error -- a response that was not looked at may not be there
  void outcome.response.paid
}

void use

// @ts-expect-error -- without execute nothing would happen
command('Empty', { input: z.object({}) })
// @ts-expect-error -- a misspelt option
command('Misspelt', { input: z.object({}), execute: async () => 1, stores: 'response' })
// @ts-expect-error -- a plan gets no transaction
command('Eager', { input: z.object({}), plan: (_input, { tx }) => tx, execute: async () => 1 })
