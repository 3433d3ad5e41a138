/**
 * The promises every transport must keep. A transport is done when this suite passes.
 *
 * It runs under any test runner: `describe` and `test` are passed in. A harness opens the transport on a broker of its
 * own; what a broker cannot do is said by leaving it out of the harness or by a feature, and those promises are skipped
 * by name, never silently.
 *
 *   transportContract('memory', { describe, test, open: async () => harnessOf(memory()) })
 */
import type { Transport } from '../../transport/port/transport.ts'
import { publishingPromises } from './publishing.ts'
import { receivingPromises } from './receiving.ts'
import { settlingPromises } from './settling.ts'

/** A transport, open, and what the suite needs around it. */
export interface TransportHarness {
  readonly transport: Transport
  /** A topic that nobody has used, with a subscription for each of the consumers where the broker needs them beforehand. */
  readonly makeTopic: (consumers: readonly string[]) => Promise<string>
  /** Takes the broker down; the function that it returns brings it back. Left out where that cannot be done. */
  readonly outage?: () => Promise<() => Promise<void>>
  /** Closes the transport and whatever was started for it. */
  close(): Promise<void>
}

export interface TransportFeatures {
  /** Messages of one key keep their order. @default true */
  readonly ordered?: boolean
  /** A key in the hand of one receiver is not handed to another. @default true */
  readonly exclusiveKeys?: boolean
  /** A consumer's position can be moved. @default true */
  readonly seek?: boolean
  /** A consumer can be moved back without skipping what it has not settled. @default true */
  readonly rewind?: boolean
}

/** One promise: its name says what is promised, and `check` throws if it is not kept. */
export interface TransportPromise {
  readonly name: string
  readonly needs?: keyof TransportFeatures | 'outage'
  readonly check: (harness: TransportHarness) => Promise<void>
  /** What is checked of a transport that has not got what it needs. @default nothing: the promise is skipped */
  readonly without?: (harness: TransportHarness) => Promise<void>
}

/** The part of a test runner that the suite uses. */
export interface TransportContractOptions {
  readonly describe: (name: string, body: () => void) => unknown
  readonly test: ((name: string, body: () => Promise<void>) => unknown) & {
    readonly skip: (name: string, body: () => Promise<void>) => unknown
  }
  /** Called for every promise; it may hand out the same broker again, but never the same topic. */
  readonly open: () => Promise<TransportHarness>
  readonly features?: TransportFeatures
  /** Whether `open` returns harnesses with an `outage`. @default true */
  readonly outage?: boolean
}

/** Registers one test for each promise. */
export function transportContract(name: string, options: TransportContractOptions): void {
  const { describe, test, open, features = {}, outage = true } = options
  const has = { ordered: true, exclusiveKeys: true, seek: true, rewind: true, ...features, outage }
  describe(`${name} keeps the transport contract`, () => {
    for (const promise of transportPromises) {
      const isPromised = promise.needs === undefined || has[promise.needs]
      const check = isPromised ? promise.check : promise.without
      const register = check === undefined ? test.skip : test
      register(promise.name, async () => {
        const harness = await open()
        try {
          await check?.(harness)
        } finally {
          await harness.close()
        }
      })
    }
  })
}

/** All promises, for runners that want them one by one. */
export const transportPromises: readonly TransportPromise[] = [...publishingPromises, ...receivingPromises, ...settlingPromises]
