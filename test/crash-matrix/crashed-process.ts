/** A process of one role, which freezes at the place that it is told. It works until it is told to stop. */
import { flushCompileCache } from 'node:module'
import { errorMessage, isWaybillError } from '../../src/core/errors.ts'
import { run, type Service } from '../../src/core/service/lifetime.ts'
import { connect } from '../../src/postgres/connect.ts'
import type { CrashRole } from '../../src/testing/faults/crash-places.ts'
import { createCrashPoints } from '../../src/testing/faults/crash-points.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createFailpoints } from '../../src/testing/faults/failpoint.ts'
import type { HistoryEntry } from '../../src/testing/history/entry.ts'
import { answerOf } from '../../src/testing/history/message-entries.ts'
import type { KafkaClient } from '../../src/transport/kafka/client/kafka-client.ts'
import { redisClients } from '../command/redis-clients.ts'
import { commandsOn, consumerOn, depositCommand, relayOn, type Deposit } from './ledger.ts'
import { mistakenPublisher, mistakenReceiver, mistakenWrite, type Forgotten, type Mistake } from './mistakes.ts'
import { condemning, impatient, overtaking, topicOf, transportTo, type BrokerAddress } from './transport-to.ts'

/** What the parent says first; whatever it says next means stop. */
export interface CrashSettings {
  readonly role: CrashRole
  readonly failpoint: string
  /** How often it comes to the failpoint before it freezes. */
  readonly onHit: number
  readonly url: string
  readonly broker: BrokerAddress
  readonly redisUrl: string | undefined
  /** Whether it is to send something that the broker refuses, if the broker does not see to that. */
  readonly isCondemned: boolean
  readonly deposits: readonly Deposit[]
  /** Whether a change is to come to it before its predecessor. */
  readonly isOvertaken: boolean
  /** Whether there is a change that it has to give up. */
  readonly isPoisoned: boolean
  /** A known mistake, to see that it is noticed. */
  readonly mistake?: Mistake | undefined
}

export type CrashReport = { readonly entry: HistoryEntry } | { readonly isDone: true } | { readonly isReady: true }

const say = (report: CrashReport): void => void process.send?.(report)
const stop = new AbortController()
// Loaded before anything is at stake: a lease should not end while a client is still being read from the disk.
await import(process.argv[2] === 'Kafka' ? '@platformatic/kafka' : '@google-cloud/pubsub')
process.once('message', (settings: CrashSettings) => {
  process.once('message', () => stop.abort())
  process.once('disconnect', () => process.exit())
  void work(settings).then(
    () => process.exit(),
    (error: unknown) => {
      process.stderr.write(`${errorMessage(error)}\n${(error as Error).stack}\n`)
      process.exit(1)
    },
  )
})
// What is killed writes nothing at its end.
flushCompileCache()
say({ isReady: true })

async function work(settings: CrashSettings): Promise<void> {
  const points = createCrashPoints(settings.role, {
    failpoints: createFailpoints({ name: settings.failpoint, action: 'freeze', onHit: settings.onHit }),
  })
  const clients: KafkaClient[] = []
  const around = (client: KafkaClient): KafkaClient => {
    clients.push(client)
    return points.kafkaClient(client)
  }
  const transport = transportTo(settings.broker, { around, times: impatient })
  const db = points.database(connect({ url: settings.url, max: 5, applicationName: 'crashed' }))
  // A process that has been running for a while has connections, whatever it does first and however late the first answers are.
  const reached = clients.map((client) => eventually(() => client.describeTopic(topicOf(settings.broker))))
  await Promise.all([eventually(() => db.query('select 1')), ...reached])
  // A stop that stands still in its last moments is still one.
  const bounds = { signal: stop.signal, stopTimeoutMs: 3_000, abortTimeoutMs: 30_000 }
  const serve = (service: Service): Promise<void> => run([service], bounds)
  switch (settings.role) {
    case 'writer':
      return await answerAll(settings.deposits, async (deposit) => {
        await mistakenWrite(settings.mistake)(db, deposit)
        return { outcome: 'ok' }
      })
    case 'command server': {
      const open = redisClients['ioredis']
      if (open === undefined || settings.redisUrl === undefined) throw new Error('There is no Redis.')
      const commands = commandsOn(db, points.cache((await open(settings.redisUrl)).cache))
      return await answerAll(settings.deposits, async (deposit) =>
        answerOf(await commands.run(depositCommand, { principal: 'ann', requestId: deposit.request, input: deposit })),
      )
    }
    case 'relay': {
      const publisher = mistakenPublisher(settings.isCondemned ? condemning(transport) : transport, settings.mistake)
      return await serve(relayOn(db, points.publisher(publisher), 2_000))
    }
    case 'consumer':
    case 'stored consumer': {
      const receiver = mistakenReceiver(
        settings.isOvertaken ? overtaking(transport) : transport,
        settings.mistake,
        forgottenBy(clients[0]),
      )
      const { role, isPoisoned } = settings
      const mode = role === 'consumer' ? 'direct' : 'stored'
      return await serve(consumerOn(db, points.receiver(receiver), { mode, isPoisoned }))
    }
  }
}

/** What Kafka has committed it does not bring again. */
function forgottenBy(client: KafkaClient | undefined): Forgotten {
  return async ({ topic, position }) => {
    if (client === undefined || position === undefined) throw new Error('The broker does not say.')
    const partition = Number(position.partition)
    const group = `${topic}.ledger`
    await eventually(async () => {
      const committed = await client.committedOffsets({ group, topic, partitions: [partition] })
      return (committed.get(partition) ?? 0n) > position.offset
    })
  }
}

type Answered = Pick<Extract<HistoryEntry, { op: 'answer' }>, 'outcome' | 'response'>

async function answerAll(deposits: readonly Deposit[], serve: (deposit: Deposit) => Promise<Answered>): Promise<void> {
  for (const deposit of deposits) {
    const { request, account, amount } = deposit
    const call = `child ${request}`
    say({ entry: { op: 'invoke', call, request, payload: `${account} ${amount}` } })
    const answer = await serve(deposit).catch((error: unknown): Answered => ({
      outcome: isWaybillError(error, 'COMMIT_UNKNOWN') ? 'info' : 'fail',
    }))
    say({ entry: { op: 'answer', call, request, ...answer } })
  }
  say({ isDone: true })
  await new Promise((resolve) => stop.signal.addEventListener('abort', resolve))
}
