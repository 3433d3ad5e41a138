/**
 * The same run for the history checker of `waybill/testing`: a second opinion, by ten promises, on what the ledger counts.
 *
 * It remembers every event, so it is kept for the first half million entries or so; a demo that is left running goes on with the
 * ledger alone, whose size does not grow.
 */
import { aggregateName, createChecker, type HistoryEntry, type Verdict } from 'waybill/testing'

const mostEntries = 2_000_000

export class RunHistory {
  readonly #checker = createChecker()
  #entries = 0

  record(entry: HistoryEntry): void {
    this.#entries += 1
    if (this.#entries <= mostEntries) this.#checker.record(entry)
  }

  /** What an event is called in a history. */
  static of({ type, id }: { readonly type: string; readonly id: string }): string {
    return aggregateName(type, id)
  }

  /** `undefined` if the run was longer than the history. */
  verdict(): Verdict | undefined {
    return this.#entries <= mostEntries ? this.#checker.verdict() : undefined
  }
}
