/**
 * The promises every database adapter must keep. An adapter is done when this suite passes with its real library.
 *
 * Each harness has a pool of one connection, so a client that is lost, or given back broken, shows at the next use.
 */
import { afterEach, beforeAll, describe } from 'vitest'

import type { FileDatabase } from '../setup/test-database.ts'
import { brokenConnections, lostCommits } from './adapter-faults.ts'
import type { AdapterContext, AdapterHarness } from './adapter-harness.ts'
import { outbox } from './adapter-outbox.ts'
import { settings } from './adapter-settings.ts'
import { statements } from './adapter-statements.ts'
import { oneTransaction, theTruth } from './adapter-transactions.ts'
import { underWay } from './adapter-under-way.ts'

type OpenAdapter<Native> = (url: string) => AdapterHarness<Native> | Promise<AdapterHarness<Native>>

/** Runs the suite for one adapter, in a describe block of its name. */
export function adapterContract<Native>(name: string, database: FileDatabase, open: OpenAdapter<Native>): void {
  describe(`${name} keeps the adapter contract`, () => {
    const opened: AdapterHarness<Native>[] = []
    const context: AdapterContext<Native> = {
      database,
      use: async (url = database.url) => {
        const harness = await open(url)
        opened.push(harness)
        return harness
      },
    }
    beforeAll(async () => {
      await database.pool.query(`
        create table if not exists note (id int primary key, text text);
        create table if not exists slot (id int unique deferrable initially deferred)`)
    })
    afterEach(async () => {
      await Promise.all(opened.splice(0).map((harness) => harness.close()))
      await database.pool.query('truncate note, slot')
    })
    statements(context)
    oneTransaction(context)
    underWay(context)
    theTruth(context)
    settings(context)
    brokenConnections(context)
    lostCommits(context)
    outbox(context)
  })
}
