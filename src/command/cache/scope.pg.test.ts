import { describe, expect, test } from 'vitest'
import { depositCommand } from '../../../test/command/bank.ts'
import { commandSetup, gate, heard } from '../../../test/command/command-setup.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { memoryCache } from './memory.ts'

const { db, commandsWith, newAccount, newRequest } = await commandSetup()

test('services that share a cache never answer for each other, whatever their schemas and deployments', async () => {
  const cache = memoryCache()
  await migrate(db, { schema: 'other_tenant', service: 'bank' })
  const deposit = depositCommand({ store: 'response' })
  const other = depositCommand({ name: 'Other', store: 'response' })
  const requestId = newRequest()
  const request = { principal: 'ann', requestId, input: { account: newAccount(), amount: 5 } }
  expect(await commandsWith({ cache }).run(deposit, request)).toMatchObject({ status: 'executed' })
  expect(await commandsWith({ cache }).run(deposit, request)).toMatchObject({ status: 'replayed', from: 'cache' })
  const tenant = { cache, schema: 'other_tenant', outbox: createOutbox({ schema: 'other_tenant' }) }
  expect(await commandsWith(tenant).run(other, request)).toMatchObject({ status: 'executed' })
  await db.query(`update waybill.deployment set deployment_id = 'adopted'`)
  await db.query(`delete from waybill.command_marker where request_id = $1`, [requestId])
  expect(await commandsWith({ cache }).run(deposit, request)).toMatchObject({ status: 'executed' })
})

test('whose the cache is is asked once; while nobody can tell, it is left out', async () => {
  let isAway = true
  let asked = 0
  const sometimes: typeof db = {
    ...db,
    query: async (text, values) => {
      if (!text.includes('"deployment"')) return await db.query(text, values)
      asked += 1
      if (isAway) throw new Error('connection refused')
      return await db.query(text, values)
    },
  }
  const { signals, all } = heard('command.cache-failed')
  const commands = commandsWith({ db: sometimes, cache: memoryCache(), signals })
  const deposit = depositCommand({ store: 'response' })
  const request = { principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } }
  expect(await commands.run(deposit, request)).toMatchObject({ status: 'executed' })
  expect(await commands.run(deposit, request)).toMatchObject({ status: 'replayed', from: 'marker' })
  expect([asked, all.length]).toEqual([2, 2])
  isAway = false
  expect(await commands.run(deposit, request)).toMatchObject({ status: 'replayed', from: 'marker' })
  expect(await commands.run(deposit, request)).toMatchObject({ status: 'replayed', from: 'cache' })
  expect([asked, all.length]).toEqual([3, 2])
})

describe('whose the cache is, asked on a connection that does not answer,', () => {
  /** The first question is answered only when `answer` is opened. */
  function unanswered() {
    const asked = gate()
    const answer = gate()
    let questions = 0
    const mute: typeof db = {
      ...db,
      query: async (text, values) => {
        if (text.includes('"deployment"') && (questions += 1) === 1) {
          asked.open()
          await answer.opened
        }
        return await db.query(text, values)
      },
    }
    const clock = createFakeClock()
    const { signals, all } = heard('command.cache-failed')
    const commands = commandsWith({ db: mute, cache: memoryCache(), clock, signals })
    return { commands, clock, asked, answer, failures: all, questions: () => questions }
  }
  const deposit = depositCommand({ store: 'response' })
  const newDeposit = () => ({ principal: 'ann', requestId: newRequest(), input: { account: newAccount(), amount: 5 } })

  test('holds a command up for a second at most and the next not at all, and is asked again on another one', async () => {
    const { commands, clock, asked, failures, questions } = unanswered()
    const first = commands.run(deposit, newDeposit())
    await asked.opened
    await clock.advance(1_000)
    expect(await first).toMatchObject({ status: 'executed' })
    const request = newDeposit()
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'executed' })
    expect(questions()).toBe(1)
    expect(failures).toMatchObject(Array(2).fill({ operation: 'claim', error: { code: 'TIMEOUT' } }))
    await clock.advance(5_000)
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'replayed', from: 'marker' })
    expect(await commands.run(deposit, request)).toMatchObject({ status: 'replayed', from: 'cache' })
    expect([questions(), failures.length, clock.sleepers()]).toEqual([2, 2, 0])
  })

  test('is known by its late answer', async () => {
    const { commands, clock, asked, answer, questions } = unanswered()
    const request = newDeposit()
    const first = commands.run(deposit, request)
    await asked.opened
    await clock.advance(1_000)
    expect(await first).toMatchObject({ status: 'executed' })
    answer.open()
    await eventually(async () => expect(await commands.run(deposit, request)).toMatchObject({ from: 'cache' }))
    expect(questions()).toBe(1)
  })
})
