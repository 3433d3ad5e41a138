/**
 * A service's events under test: an in-memory broker, a relay to it, and everything drained and verified on demand.
 *
 * Hand `transport` to your consumers, do what your service does, `drain` and look. `verify` holds the outbox, the broker's log
 * and the consumers' tables to all that this package promises, and explains what was broken.
 *
 * What had left the outbox when a kit looked for the first time, and is not in its own broker, went elsewhere: to the kit of an
 * earlier test, say. Nobody here can have it, and nobody is asked for it.
 */
import { AssertionError } from 'node:assert'
import { refuseUnknown } from '../../core/options.ts'
import type { Outbox } from '../../outbox/outbox.ts'
import type { RelayOptions } from '../../outbox/relay/relay-options.ts'
import { createRelay, type Relay } from '../../outbox/relay/relay.ts'
import { rows } from '../../postgres/query/database.ts'
import { memory, type MemoryTransport } from '../../transport/memory/memory.ts'
import { createChecker, explainVerdict, type Verdict } from '../history/checker.ts'
import { eventOf, logEntry } from '../history/message-entries.ts'
import { recordHistory, type HistoryConsumer, type HistoryOwner, type ReadHistoryOptions } from '../history/read-history.ts'
import { drain, type Drained, type DrainedConsumer, type DrainOptions } from './drain.ts'
import { readGone } from './test-kit.sql.ts'

export interface TestKitOptions extends Pick<RelayOptions, 'db'> {
  readonly outbox: Outbox
  /** @default memory(); `memory({ nasty: true })` has a bad day */
  readonly transport?: MemoryTransport
  /** More options of the relay. @default short back-offs */
  readonly relay?: Partial<Omit<RelayOptions, 'db' | 'outbox' | 'transport'>>
}

export interface TestKit {
  /** The broker. Your consumers receive from it. */
  readonly transport: MemoryTransport
  readonly relay: Relay
  /** Publishes and applies everything that was committed so far and did not go elsewhere before. */
  drain(consumers?: readonly DrainedConsumer[], options?: Pick<DrainOptions, 'start' | 'timeoutMs'>): Promise<Drained>
  /** Checks the history of this outbox and these consumers; an AssertionError explains what was broken. */
  verify(consumers?: readonly HistoryConsumer[], options?: VerifyOptions): Promise<Verdict>
}

export interface VerifyOptions extends Pick<HistoryOwner, 'states'> {
  /** Whether dead letters of this kit's events are as they should be, or something that is left. @default 'left' */
  readonly deadLetters?: NonNullable<ReadHistoryOptions['deadLetters']>
}

export function createTestKit(kitOptions: TestKitOptions): TestKit {
  refuseUnknown('testKit', kitOptions, ['db', 'outbox', 'transport', 'relay'])
  const { db, outbox, transport = memory(), relay: relayOptions } = kitOptions
  const relay = createRelay({ db, outbox, transport, backoff: { firstMs: 1, maxMs: 10 }, ...relayOptions })
  let elsewhere: ReadonlySet<string> | undefined
  const lookElsewhere = async (): Promise<ReadonlySet<string>> => {
    if (elsewhere !== undefined) return elsewhere
    const gone = await rows(db, readGone(outbox.tables))
    // Read after that: what our relay has sent by now is in the log.
    const own = new Set(transport.published.map((message) => eventOf(message).event))
    return (elsewhere ??= new Set(gone.flatMap(({ id }) => (own.has(id) ? [] : [id]))))
  }
  return {
    transport,
    relay,
    drain: async (consumers = [], options = {}) =>
      await drain({ relays: [relay], consumers, elsewhere: await lookElsewhere(), ...options }),
    verify: async (consumers = [], { deadLetters = 'left', ...options } = {}) => {
      const owner = { db, schema: outbox.tables.schema, log: 'recorded', elsewhere: await lookElsewhere(), ...options } as const
      const checker = createChecker()
      const { streams } = relay.settings
      for (const message of transport.published) checker.record({ source: 'broker', ...logEntry(message, streams) })
      await recordHistory(checker, { owner, consumers, deadLetters })
      const verdict = checker.verdict()
      if (verdict.verdict === 'pass') return verdict
      const actual = verdict.violations.map(({ text }) => text)
      throw new AssertionError({ message: explainVerdict(verdict), operator: 'verify', actual, expected: [] })
    },
  }
}
