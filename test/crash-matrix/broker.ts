/**
 * What a cell asks of its broker, whichever it is: to remember what it stored, in its order, to fail the process that is
 * crashed, and to say what it still has for the consumer.
 */
import type { FaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import type { Log } from '../../src/testing/history/entry.ts'
import type { BrokerAddress } from './transport-to.ts'

export type BrokerName = 'Pub/Sub' | 'Kafka'

export interface CellBroker {
  readonly id: string
  /** For those whom nobody crashes. */
  readonly address: BrokerAddress
  /** For the process that is crashed. */
  readonly crashedAddress: BrokerAddress
  /** What stands before the broker, for the process that is crashed. */
  readonly proxy?: FaultProxy
  /** What is stored, in the order of each key. */
  log(): Promise<readonly Log[]>
  /** How often somebody was refused so far; on Kafka, the process that is crashed. */
  refused(): number
  refuse(isRefusing: boolean): void
  /** Refuses the first change of the first account for what it is. */
  reject(isRejecting: boolean): void
  /** Messages that the consumer has not acknowledged. */
  unacked(): Promise<number>
  /** Looks at what is acknowledged, and then at what the database has. */
  look?(events: () => Promise<readonly string[]>): Promise<void>
  /** What was acknowledged, at any look, and not in the database. */
  aheadOfDatabase?(): Promise<readonly string[]>
  close(): Promise<void>
}
