/**
 * Watches what a group commits: never beyond what was processed without a gap, never back, never by one who has lost the
 * partition.
 */
import type { AcceptedCommit } from './fake-kafka.ts'

export class CommitWatch {
  readonly #processed = new Map<number, Set<bigint>>()
  readonly #committed = new Map<number, bigint>()
  readonly violations: string[] = []

  /** The effect of a record is in the database. */
  processed(partition: number, offset: bigint): void {
    const done = this.#processed.get(partition) ?? new Set<bigint>()
    this.#processed.set(partition, done.add(offset))
  }

  /** The first offset of a partition whose effect is not in the database. */
  prefix(partition: number): bigint {
    const done = this.#processed.get(partition)
    let next = 0n
    while (done?.has(next) === true) next += 1n
    return next
  }

  committed({ memberId, partition, offset, owner }: AcceptedCommit): void {
    const prefix = this.prefix(partition)
    const before = this.#committed.get(partition) ?? 0n
    if (offset > prefix) this.violations.push(`partition ${partition}: ${offset} committed, but processed up to ${prefix}`)
    if (offset < before) this.violations.push(`partition ${partition}: ${offset} committed after ${before}`)
    if (owner !== memberId) this.violations.push(`partition ${partition}: committed by ${memberId}, owned by ${owner}`)
    this.#committed.set(partition, offset)
  }
}
