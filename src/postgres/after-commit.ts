/**
 * Things to do once a transaction has committed: wake a relay, complete a cache entry. Never part of the promise.
 *
 * `transaction()` runs them after COMMIT is confirmed. In a transaction that the user's own code commits they never run,
 * so nothing may depend on them.
 */
import { isTx, type Tx } from './database.ts'

const hooks = new WeakMap<Tx, (() => void)[]>()

/** Calls `hook` after this transaction has committed, if it is one that `transaction()` runs. */
export function afterCommit(tx: Tx, hook: () => void): void {
  const listed = hooks.get(tx)
  if (listed === undefined) hooks.set(tx, [hook])
  else listed.push(hook)
}

/** Runs what was registered. A hook that throws does not undo a commit, so its error is handed to `onError`. */
export function runAfterCommit(tx: Tx, onError: (error: unknown) => void): void {
  if (!isTx(tx)) return
  for (const hook of hooks.get(tx) ?? []) {
    try {
      hook()
    } catch (error) {
      onError(error)
    }
  }
  hooks.delete(tx)
}
