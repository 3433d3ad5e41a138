/**
 * A snapshot: what a subscription had not acknowledged at one moment.
 *
 * Together with everything published to the topic since (which the topic keeps for it) it is what a subscription
 * that seeks to it will be sent.
 */
import type { Message } from './message.ts'
import { toMs } from './resources.ts'
import type { SnapshotResource } from './resources.ts'

export class Snapshot {
  resource: SnapshotResource
  /** The number of the last message published before it was taken. */
  readonly takenAt: number
  readonly unacked: readonly Message[]

  constructor(resource: SnapshotResource, takenAt: number, unacked: readonly Message[]) {
    this.resource = resource
    this.takenAt = takenAt
    this.unacked = unacked
  }

  isExpired(nowMs: number): boolean {
    return this.resource.expireTime !== undefined && toMs(this.resource.expireTime) <= nowMs
  }
}
