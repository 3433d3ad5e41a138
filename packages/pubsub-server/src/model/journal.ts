/**
 * Where the broker writes down what must survive it.
 *
 * Calls only note the change; `flushed` resolves when everything noted before it is on disk as far as was asked
 * for. A caller is answered after that, so nothing it was told can be lost.
 */
import type { Message } from './message.ts'
import type { Snapshot } from './snapshot.ts'

export type ResourceType = 'topic' | 'subscription' | 'snapshot' | 'schema' | 'policy'

export interface Retained {
  readonly message: Message
  readonly isAcked: boolean
}

export interface Journal {
  put(type: ResourceType, name: string, value: object): void
  remove(type: ResourceType, name: string): void
  publish(topic: string, messages: readonly Message[]): void
  settle(subscription: string, message: Message): void
  takeSnapshot(snapshot: Snapshot): void
  /** A seek: what the subscription holds from now on. */
  reset(subscription: string, messages: readonly Retained[]): void
  /** Undefined when there is nothing to wait for. */
  flushed(): Promise<void> | undefined
}

/** Keeps nothing: the server's memory is all there is. */
export const memoryJournal: Journal = {
  put: () => {},
  remove: () => {},
  publish: () => {},
  settle: () => {},
  takeSnapshot: () => {},
  reset: () => {},
  flushed: () => undefined,
}
