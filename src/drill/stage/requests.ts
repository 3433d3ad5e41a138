/** Requests of clients, for drills about commands: each is recorded with what its client was told. */
import { command } from '../../command/model/command.ts'
import { createCommands, type CommandsOptions } from '../../command/commands.ts'
import { WaybillError } from '../../core/errors.ts'
import type { StandardSchema } from '../../core/encoding/standard-schema.ts'
import { execute, one } from '../../postgres/query/database.ts'
import { answerOf } from '../../testing/history/message-entries.ts'
import { addToAccount, insertRequest } from '../system/tables.sql.ts'
import type { Stage } from './stage.ts'

export interface Requests {
  /** Asks once under this request id, and returns what the client was told. A client that was asked before asks the same. */
  ask(request: string): Promise<ReturnType<typeof answerOf>>
  /** Asks for each of these, one after the other; every client has to be told success. One that is put off asks again, for a while. */
  succeed(requests: readonly string[]): Promise<void>
}

export function createRequests(stage: Stage, options: Pick<CommandsOptions, 'db'> & Partial<CommandsOptions>): Requests {
  const { world, recorded } = stage
  const { schema, outbox, streams, tables } = world
  const commands = createCommands({ schema, outbox, ...options })
  const add = command('DrillDeposit', {
    input: text,
    store: 'response',
    execute: async (tx, account, { requestId, emit }) => {
      const total = Number((await one(tx, addToAccount(tables, account, 1))).total)
      const response = { total }
      await execute(tx, insertRequest(tables, requestId ?? '', JSON.stringify(response)))
      emit(streams.accounts.Deposited, account, { amount: 1 })
      emit(streams.profiles.ProfileChanged, account, { total })
      return response
    },
  })
  let calls = 0
  const ask: Requests['ask'] = async (request) => {
    const call = `call-${(calls += 1)}`
    recorded.push({ op: 'invoke', source: 'client', call, request })
    const answer = answerOf(await commands.run(add, { principal: 'drill', requestId: request, input: 'account-1' }))
    recorded.push({ op: 'answer', source: 'client', call, request, ...answer })
    return answer
  }
  const askOn = async (request: string): Promise<void> => {
    let told = 'nothing'
    await stage.until(async () => {
      told = (await ask(request)).outcome
      if (told === 'info') throw notSuccess(request, told)
      return true
    })
    if (told !== 'ok') throw notSuccess(request, told)
  }
  return {
    ask,
    succeed: async (requests) => {
      for (const request of requests) await askOn(request)
    },
  }
}

function notSuccess(request: string, told: string): WaybillError {
  return new WaybillError('UNAVAILABLE', `The client of ${request} was told "${told}" and not success.`)
}

const text: StandardSchema<string, string> = {
  '~standard': {
    version: 1,
    vendor: 'waybill',
    validate: (value) => (typeof value === 'string' ? { value } : { issues: [{ message: 'must be text' }] }),
  },
}
