/**
 * A topic: its settings, its subscriptions, and the messages it keeps for those who seek.
 *
 * Messages are kept while the topic's own retention or a snapshot needs them; otherwise only subscriptions hold them.
 */
import type { Message } from './message.ts'
import { Deque } from './queue/deque.ts'
import type { TopicResource } from './resources.ts'
import { toMs } from './resources.ts'
import type { Snapshot } from './snapshot.ts'
import type { Subscription } from './subscription.ts'

export class Topic {
  resource: TopicResource
  readonly subscriptions: Set<Subscription> = new Set()
  readonly snapshots: Set<Snapshot> = new Set()
  readonly kept: Deque<Message> = new Deque()

  constructor(resource: TopicResource) {
    this.resource = resource
  }

  get retentionMs(): number {
    const duration = this.resource.messageRetentionDuration
    return duration === undefined ? 0 : toMs(duration)
  }

  keep(message: Message): void {
    if (this.retentionMs > 0 || this.snapshots.size > 0) this.kept.push(message)
  }

  /** Drops what neither retention nor a snapshot needs any more. */
  dropExpired(nowMs: number): void {
    let neededFrom = Infinity
    for (const snapshot of this.snapshots) neededFrom = Math.min(neededFrom, snapshot.takenAt)
    for (let message = this.kept.at(0); message !== undefined; message = this.kept.at(0)) {
      if (message.publishMs + this.retentionMs > nowMs || message.number > neededFrom) return
      this.kept.shift()
    }
  }
}
