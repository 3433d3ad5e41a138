/**
 * What a consumer does beside deliveries: dead letters that an operator redrives, messages whose turn has come, the
 * register, and the report of what waits.
 *
 * Any number of instances do it at once: the letter's and the aggregate's row locks and the inbox make sure that each effect
 * happens once.
 */
import { execute, first, one, rows } from '../postgres/database.ts'
import type { EngineDeps } from './consumer-engine.ts'
import { markFailed, readRedriving } from './dead-letter.sql.ts'
import { fromStored } from './decode.ts'
import { countWaiting, readConsumer, readReleased, type Scope } from './inbox.sql.ts'
import type { Item } from './item.ts'

export interface StoredWorkDeps extends EngineDeps {
  readonly scope: Scope
  /** Returns how many of them it took up. */
  readonly work: (items: readonly Item[]) => Promise<number>
}

export interface StoredWork {
  /** One look. `found` if there was something, so that it is worth looking again at once. */
  pass(): Promise<{ readonly found: boolean; readonly paused: boolean }>
}

const passLimit = 500
const reportEveryMs = 10_000

export function createStoredWork({ settings, routes, scope, work }: StoredWorkDeps): StoredWork {
  const { db, clock, signals, gapAlertMs, deltaStart } = settings
  let reportAt = 0
  let reported = 0
  const report = async (): Promise<void> => {
    if (clock.monotonicMs() < reportAt) return
    reportAt = clock.monotonicMs() + Math.min(reportEveryMs, gapAlertMs)
    const { messages, aggregates, held, oldest_ms: oldest } = await one(db, countWaiting(scope))
    // Told while there is something, and once more when it is gone.
    if (messages === 0 && reported === 0) return
    reported = messages
    const oldestMs = Number(oldest ?? 0)
    signals.emit('consumer.backlog', {
      consumer: scope.consumer,
      messages,
      aggregates,
      held,
      oldestMs,
      alert: oldestMs > gapAlertMs,
    })
  }
  const refuse = (letterId: string): Promise<number> =>
    execute(db, markFailed(scope, letterId, `The message is no event of a stream that consumer ${scope.consumer} reads.`))
  return {
    pass: async () => {
      const paused = (await first(db, readConsumer(scope)))?.paused ?? false
      await report()
      if (paused) return { found: false, paused }
      const redriving = await rows(db, readRedriving(scope, passLimit))
      const released = await rows(db, readReleased(scope, { ...routes, deltaStart }, passLimit))
      const letters = await Promise.all(redriving.map((row) => fromStored(row, 'dead', routes)))
      for (const [i, item] of letters.entries()) if (item === undefined) await refuse(redriving[i]?.seq ?? '')
      const waiting = await Promise.all(released.map((row) => fromStored(row, 'waiting', routes)))
      // A redriven one goes before those that wait for it.
      let worked = 0
      for (const items of [letters, waiting]) worked += await work(items.filter((item) => item !== undefined))
      return { found: worked > 0, paused }
    },
  }
}
