/**
 * Which transactions of commands are open around the code that runs now.
 *
 * `commands.run` takes a connection and commits by itself. Inside `execute` that is a trap twice over: callers that hold a
 * connection each and wait for a second one empty the pool and wait for each other, and the inner command stays where the outer
 * one is rolled back. So it is refused there, for the same database.
 *
 * The async context finds the transaction; whether it is open, the transaction itself says. What `execute` has left running may
 * run commands once the transaction has ended, and so may an `execute` for another database.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { WaybillError } from '../../core/errors.ts'
import { connectionsOf, type Database } from '../../postgres/query/database.ts'

interface Open {
  readonly command: string
  readonly pool: object
  isOpen: boolean
}

/** The transactions that were open at the start of this code, outermost first. */
const around = new AsyncLocalStorage<readonly Open[]>()

/** A transaction of a command, from before its BEGIN to after its end. */
export interface OpenCommand {
  /** Runs the command's own code as a part of the transaction. */
  inside<Result>(work: () => Promise<Result>): Promise<Result>
  ended(): void
}

export function openCommand(db: Database, command: string): OpenCommand {
  const own: Open = { command, pool: connectionsOf(db), isOpen: true }
  return {
    // What has ended is left out: code that goes on for ever from one command to the next would drag all of them along.
    inside: (work) => around.run([...(around.getStore() ?? []).filter(({ isOpen }) => isOpen), own], work),
    ended: () => void (own.isOpen = false),
  }
}

/** Throws INVALID_OPTION inside the open transaction of a command, for the same database. */
export function refuseInside(db: Database, command: string): void {
  const outer = around.getStore()?.find(({ isOpen, pool }) => isOpen && pool === connectionsOf(db))
  if (outer === undefined) return
  throw new WaybillError(
    'INVALID_OPTION',
    `commands.run(${command}) was called inside the transaction of ${outer.command}, which is still open. It would take a second connection and commit by itself. Plan it with child(${command}, input) in the plan of ${outer.command} and run what that returns with run(…) in its execute, or run it after ${outer.command} has ended.`,
  )
}
