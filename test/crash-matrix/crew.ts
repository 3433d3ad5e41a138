/**
 * The part of the system that nobody crashes: clients that repeat their requests until they know, a relay and a consumer, and an
 * operator, in the parent's own process. They do what the crashed process left undone, and bring the system to rest.
 */
import { setTimeout } from 'node:timers/promises'
import { run, type Service } from '../../src/core/service/lifetime.ts'
import { createSignals } from '../../src/core/signals.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { Recorder } from '../../src/testing/history/history.ts'
import { answerOf } from '../../src/testing/history/message-entries.ts'
import type { Transport } from '../../src/transport/port/transport.ts'
import type { CommandCache } from '../../src/command/cache/cache.ts'
import type { Consumer } from '../../src/consumer/consumer.ts'
import { commandsOn, consumerOn, depositCommand, redrivePoison, relayOn, type Deposit, type LedgerConsumer } from './ledger.ts'

export interface Crew {
  readonly consumer: Consumer
  /** Repeats the request, as its client would, until it is known what became of it. */
  insist(deposit: Deposit): Promise<void>
  /** Publishes all there is. */
  publishAll(): Promise<void>
  /** More of them than there are, each time. */
  start(which: { readonly relay: boolean; readonly consumer: boolean }): void
  /** From now on an operator looks after dead letters. */
  startOperator(): void
  stop(): Promise<void>
}

export interface CrewParts extends LedgerConsumer {
  readonly db: Database
  readonly cache: CommandCache
  readonly transport: Transport
  readonly history: Recorder
}

export function createCrew({ db, cache, transport, history, mode, isPoisoned }: CrewParts): Crew {
  const commands = commandsOn(db, cache)
  const consumer = consumerOn(db, transport, { mode, isPoisoned })
  const stopping = new AbortController()
  const running: Promise<void>[] = []
  let calls = 0
  const ask = async (deposit: Deposit): Promise<boolean> => {
    const { request, account, amount } = deposit
    const call = `crew ${(calls += 1)}`
    history.record({ op: 'invoke', call, request, payload: `${account} ${amount}` })
    try {
      const outcome = await commands.run(depositCommand, { principal: 'ann', requestId: request, input: deposit })
      history.record({ op: 'answer', call, request, ...answerOf(outcome) })
      return outcome.status !== 'failed' || outcome.code === 'ALREADY_COMMITTED'
    } catch {
      history.record({ op: 'answer', call, request, outcome: 'fail' })
      return false
    }
  }
  /** A service that cannot even start while the database is away is started again, as whoever runs it would. */
  const keep = async (service: Service): Promise<void> => {
    while (!stopping.signal.aborted) {
      const bounds = { stopTimeoutMs: 3_000, abortTimeoutMs: 30_000 }
      await run([service], { signal: stopping.signal, ...bounds, signals: createSignals() }).catch(() => undefined)
      if (!stopping.signal.aborted) await setTimeout(50)
    }
  }
  /** Also while the database is away: then later. */
  const operate = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await redrivePoison(db).catch(() => undefined)
      await setTimeout(20)
    }
  }
  /** One answer that is late ends a relay that drains, and what it has sent rests for a moment. */
  const publish = async (): Promise<boolean> => {
    await relayOn(db, transport).once()
    return (await db.query('select from waybill.outbox_dispatch')).rows.length === 0
  }
  return {
    consumer,
    insist: async (deposit) => void (await eventually(() => ask(deposit), { intervalMs: 30 })),
    publishAll: async () => void (await eventually(publish, { intervalMs: 50 })),
    start: (which) => {
      if (which.relay) running.push(keep(relayOn(db, transport)))
      if (which.consumer) running.push(keep(consumerOn(db, transport, { mode, isPoisoned })))
    },
    startOperator: () => void running.push(operate()),
    stop: async () => {
      stopping.abort()
      await Promise.all(running)
    },
  }
}
