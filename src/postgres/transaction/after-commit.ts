/**
 * Things to do once a transaction has committed: wake a relay, complete a cache entry. Never part of the promise.
 *
 * `transaction()` runs them after COMMIT is confirmed. In a transaction that the user's own code commits they never run,
 * so nothing may depend on them.
 */
import { placeOf, type Tx } from '../query/database.ts'

/** Calls `hook` after this transaction has committed, if it is one that `transaction()` runs. */
export function afterCommit(tx: Tx, hook: () => void): void {
  placeOf(tx)?.gate.afterCommit.push(hook)
}

/** Runs what was registered. A hook that throws does not undo a commit, so its error is handed to `onError`. */
export function runAfterCommit(tx: Tx, onError: (error: unknown) => void): void {
  for (const hook of placeOf(tx)?.gate.afterCommit.splice(0) ?? []) {
    try {
      hook()
    } catch (error) {
      onError(error)
    }
  }
}
