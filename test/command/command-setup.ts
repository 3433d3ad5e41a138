/**
 * What every test file of commands begins with: a database with the bank in it, and makers of ids, gates and listeners.
 */
import { createCommands, type Commands, type CommandsOptions } from '../../src/command/commands.ts'
import { createSignals, type SignalBus, type SignalName, type Signals } from '../../src/core/signals.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { testDatabase, type FileDatabase } from '../setup/test-database.ts'
import { openBank, type Bank } from './bank.ts'

export interface CommandSetup {
  readonly database: FileDatabase
  readonly db: Database
  readonly bank: Bank
  readonly commandsWith: (options?: Partial<CommandsOptions>) => Commands
  readonly newRequest: () => string
  readonly newAccount: () => string
}

/** To be called at the top of a test file. */
export async function commandSetup(): Promise<CommandSetup> {
  const database = await testDatabase()
  const db = fromPg(database.pool)
  const bank = await openBank(db)
  let ids = 0
  return {
    database,
    db,
    bank,
    commandsWith: (options = {}) => createCommands({ db, outbox: bank.outbox, ...options }),
    newRequest: () => `request-${(ids += 1)}`,
    newAccount: () => `account-${(ids += 1)}`,
  }
}

/** A bus, and what was said on it under one name. */
export function heard<Name extends SignalName>(name: Name): { readonly signals: SignalBus; readonly all: Signals[Name][] } {
  const signals = createSignals()
  const all: Signals[Name][] = []
  signals.on(name, (event) => void all.push(event))
  return { signals, all }
}

/** A promise and the way to keep it. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>()
  return { opened: promise, open: resolve }
}
