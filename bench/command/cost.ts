/**
 * What a command costs beside the same transaction without it, what a repeat costs, and what contention does.
 */
import { lockAggregate } from '../../src/command/aggregate.ts'
import { transaction } from '../../src/postgres/transaction.ts'
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

interface Context extends CommandBench {
  readonly calls: number
  readonly known: { readonly requestId: string; readonly input: { readonly account: string; readonly amount: number } }
}

const ask = () => ({ principal: 'bench', requestId: nextRequest(), input: { account: nextAccount(), amount: 1 } })

/** Asks until it is executed, as a client does; counts as one call. */
async function insist(commands: ReturnType<CommandBench['commandsWith']>, command: typeof locked): Promise<void> {
  const request = { ...ask(), input: { account: 'account-0', amount: 1 } }
  for (;;) if ((await commands.run(command, request)).status === 'executed') return
}

export const costBench: Bench = defineBench<Context>({
  name: 'cost',
  summary: 'a command beside its bare transaction, repeats, contention on one aggregate',
  unit: 'µs/command',
  setup: async ({ quick }) => {
    const bench = await openCommandBench()
    const known = ask()
    await bench.commandsWith({ cache: bench.cache, cacheBudgetMs: 10_000 }).run(response, { ...known })
    return { ...bench, calls: quick ? 400 : 2_000, known }
  },
  close: ({ close }) => close(),
  contenders: {
    'bare transaction': ({ db, outbox, calls }) =>
      microsecondsPerCall(calls, callers, () =>
        transaction(db, async (tx) => {
          const account = nextAccount()
          await lockAggregate(tx, { type: 'account', id: account })
          const balance = await depositRows(tx, account, 1)
          await outbox.add(tx, accounts.BalanceChanged, account, { balance })
        }),
      ),
    'with marker': ({ commandsWith, calls }) => {
      const commands = commandsWith()
      return microsecondsPerCall(calls, callers, () => commands.run(marker, ask()))
    },
    'with marker and response': ({ commandsWith, calls }) => {
      const commands = commandsWith()
      return microsecondsPerCall(calls, callers, () => commands.run(response, ask()))
    },
    'with marker, response and cache': ({ commandsWith, cache, calls }) => {
      const commands = commandsWith({ cache, cacheBudgetMs: 10_000 })
      return microsecondsPerCall(calls, callers, () => commands.run(response, ask()))
    },
    'repeat, answered by the marker': ({ commandsWith, calls, known }) => {
      const commands = commandsWith()
      return microsecondsPerCall(calls, callers, () => commands.run(response, { principal: 'bench', ...known }))
    },
    'repeat, answered by the cache': ({ commandsWith, cache, calls, known }) => {
      const commands = commandsWith({ cache, cacheBudgetMs: 10_000 })
      return microsecondsPerCall(calls, callers, () => commands.run(response, { principal: 'bench', ...known }))
    },
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
      const storms = Math.max(1, calls / 200)
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
