/**
 * What a command costs beside the same transaction without it, what a repeat costs, and what contention does.
 */
import { lockAggregate } from '../../src/command/model/aggregate.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { type Bench, defineBench } from '../harness.ts'
import {
  accounts,
  depositCommand,
  depositRows,
  microsecondsPerCall,
  nextAccount,
  nextRequest,
  openCommandBench,
  type CommandBench,
} from './command-bench.ts'

const callers = 8
const marker = depositCommand('Marker')
const response = depositCommand('Response', { store: 'response' })
const locked = depositCommand('Locked')
const compared = depositCommand('Compared', { locking: 'version' })

type Call = () => Promise<unknown>

interface Context extends CommandBench {
  readonly calls: number
  /** What is compared with each other, measured in turns of a few calls: a slow second hits all of them alike. */
  readonly compared: (name: string) => Promise<number>
}

const ask = () => ({ principal: 'bench', requestId: nextRequest(), input: { account: nextAccount(), amount: 1 } })

/** Asks until it is executed, as a client does; counts as one call. */
async function insist(commands: ReturnType<CommandBench['commandsWith']>, command: typeof locked): Promise<void> {
  const request = { ...ask(), input: { account: 'account-0', amount: 1 } }
  for (;;) if ((await commands.run(command, request)).status === 'executed') return
}

async function comparedCalls(bench: CommandBench): Promise<Readonly<Record<string, Call>>> {
  const { db, outbox, cache, commandsWith } = bench
  const [plain, cached] = [commandsWith(), commandsWith({ cache, cacheBudgetMs: 10_000 })]
  const known = ask()
  await cached.run(response, known)
  return {
    'bare transaction': () =>
      transaction(db, async (tx) => {
        const account = nextAccount()
        await lockAggregate(tx, { type: 'account', id: account })
        const balance = await depositRows(tx, account, 1)
        await outbox.add(tx, accounts.BalanceChanged, account, { balance })
      }),
    'with marker': () => plain.run(marker, ask()),
    'with marker and response': () => plain.run(response, ask()),
    'with marker, response and cache': () => cached.run(response, ask()),
    'repeat, answered by the marker': () => plain.run(response, known),
    'repeat, answered by the cache': () => cached.run(response, known),
  }
}

/** The samples of one round are taken together, when the first of them is asked for. */
function inTurns(calls: number, compared: Readonly<Record<string, Call>>): (name: string) => Promise<number> {
  const turn = 50
  let samples = new Map<string, number>()
  return async (name) => {
    if (!samples.has(name)) {
      samples = new Map(Object.keys(compared).map((each) => [each, 0]))
      for (let done = 0; done < calls; done += turn) {
        for (const [each, call] of Object.entries(compared)) {
          const us = await microsecondsPerCall(turn, callers, call)
          samples.set(each, (samples.get(each) ?? 0) + (us * turn) / calls)
        }
      }
    }
    const sample = samples.get(name) ?? Number.NaN
    samples.delete(name)
    return sample
  }
}

export const costBench: Bench = defineBench<Context>({
  name: 'cost',
  summary: 'a command beside its bare transaction, repeats, contention on one aggregate',
  unit: 'µs/command',
  setup: async ({ quick }) => {
    const bench = await openCommandBench()
    const calls = quick ? 200 : 1_000
    return { ...bench, calls, compared: inTurns(calls, await comparedCalls(bench)) }
  },
  close: ({ close }) => close(),
  contenders: {
    'bare transaction': ({ compared }) => compared('bare transaction'),
    'with marker': ({ compared }) => compared('with marker'),
    'with marker and response': ({ compared }) => compared('with marker and response'),
    'with marker, response and cache': ({ compared }) => compared('with marker, response and cache'),
    'repeat, answered by the marker': ({ compared }) => compared('repeat, answered by the marker'),
    'repeat, answered by the cache': ({ compared }) => compared('repeat, answered by the cache'),
    'one aggregate, its row held': ({ commandsWith, calls }) => {
      const commands = commandsWith()
      return microsecondsPerCall(calls / 4, callers, () => insist(commands, locked))
    },
    'one aggregate, versions compared': ({ commandsWith, calls }) => {
      const commands = commandsWith()
      return microsecondsPerCall(calls / 4, callers, () => insist(commands, compared))
    },
    'storm: 50 of the same at once': async ({ commandsWith, cache, calls }) => {
      const commands = commandsWith({ cache, cacheBudgetMs: 10_000, waitForWinnerMs: 10_000 })
      const storms = Math.max(1, calls / 100)
      let us = 0
      for (let n = 0; n < storms; n += 1) {
        const request = ask()
        us += await microsecondsPerCall(50, 50, () => commands.run(response, request))
      }
      return us / storms
    },
  },
  bars: [
    { name: 'marker ÷ bare', target: 1.25, direction: 'at-most', of: (us) => us('with marker') / us('bare transaction') },
    {
      name: 'response ÷ bare',
      target: 1.4,
      direction: 'at-most',
      of: (us) => us('with marker and response') / us('bare transaction'),
    },
    {
      name: 'rate of repeats, cache ÷ marker',
      target: 3,
      direction: 'at-least',
      of: (us) => us('repeat, answered by the marker') / us('repeat, answered by the cache'),
    },
  ],
})
