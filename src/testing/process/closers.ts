/**
 * What is to be closed at the end, the last first. All of it is, also when some of it fails.
 *
 * `AsyncDisposableStack` is the same, but Node 22 has none.
 */
export class Closers {
  readonly #closers: (() => Promise<void>)[] = []

  defer(close: () => Promise<void>): void {
    this.#closers.push(close)
  }

  /** Rejects with the first failure when all had their turn. */
  async close(): Promise<void> {
    const failures: unknown[] = []
    for (let close = this.#closers.pop(); close !== undefined; close = this.#closers.pop()) {
      await close().catch((error: unknown) => failures.push(error))
    }
    if (failures.length > 0) throw failures[0]
  }
}
