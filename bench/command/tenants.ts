/**
 * What a calm tenant notices of another one that sends 300 commands for one account at once, each of 50 ms, over a pool of ten, and
 * goes on as it is told to: nothing but the work that the machine does for both.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { command } from '../../src/command/model/command.ts'
import { createCommands } from '../../src/command/commands.ts'
import { connect } from '../../src/postgres/connect.ts'
import { z } from 'zod'
import { type Bench, defineBench } from '../harness.ts'
import { median } from '../statistics.ts'
import { depositCommand, nextAccount, nextRequest, openCommandBench } from './command-bench.ts'

const calm = depositCommand('Calm')
const hot = command('Hot', {
  input: z.object({ account: z.string() }),
  aggregate: ({ account }) => ({ type: 'account', id: account }),
  execute: async (tx) => void (await tx.query('select pg_sleep(0.05)')),
})

interface Context {
  /** The median of calls of the calm tenant, one after the other. */
  readonly beCalm: () => Promise<number>
  /** Attacks until it is stopped. */
  readonly attack: () => { readonly stop: () => Promise<void> }
  readonly close: () => Promise<void>
}

async function openTenants(quick: boolean): Promise<Context> {
  const bench = await openCommandBench()
  const db = connect({ url: bench.url, max: 10 })
  const commands = createCommands({ db, outbox: bench.outbox })
  const askCalmly = async (): Promise<number> => {
    const startedAt = process.hrtime.bigint()
    const input = { account: nextAccount(), amount: 1 }
    const { status } = await commands.run(calm, { principal: 'calm', requestId: nextRequest(), input })
    if (status !== 'executed') throw new Error(`The calm tenant was told "${status}".`)
    return Number(process.hrtime.bigint() - startedAt) / 1_000
  }
  const attacker = async (isOver: () => boolean, signal: AbortSignal): Promise<void> => {
    while (!isOver()) {
      const outcome = await commands.run(hot, { principal: 'hot', requestId: nextRequest(), input: { account: 'hot' }, signal })
      const waitMs = outcome.status === 'failed' ? (outcome.retryAfterMs ?? 0) : 0
      if (waitMs > 0) await sleep(waitMs, undefined, { signal }).catch(() => undefined)
    }
  }
  return {
    beCalm: async () => {
      const times: number[] = []
      for (let n = 0; n < (quick ? 100 : 500); n += 1) times.push(await askCalmly())
      return median(times)
    },
    attack: () => {
      const over = new AbortController()
      const attacking = Promise.all(Array.from({ length: 300 }, () => attacker(() => over.signal.aborted, over.signal)))
      return { stop: async () => (over.abort(), void (await attacking)) }
    },
    close: async () => (await db.close(), await bench.close()),
  }
}

export const tenantsBench: Bench = defineBench<Context>({
  name: 'tenants',
  summary: 'a calm tenant beside one that sends 300 commands for one account at once, over a pool of ten',
  unit: 'µs at the median',
  setup: ({ quick }) => openTenants(quick),
  close: ({ close }) => close(),
  contenders: {
    'a calm tenant alone': ({ beCalm }) => beCalm(),
    'a calm tenant beside a hot key': async ({ beCalm, attack }) => {
      const { stop } = attack()
      try {
        return await beCalm()
      } finally {
        await stop()
      }
    },
  },
  bars: [
    {
      name: 'calm tenant, beside a hot key ÷ alone',
      target: 2,
      direction: 'at-most',
      of: (us) => us('a calm tenant beside a hot key') / us('a calm tenant alone'),
    },
  ],
})
