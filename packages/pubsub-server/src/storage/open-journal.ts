/**
 * Brings a broker back from its data folder and keeps it there.
 *
 * Only the newest complete log counts: an older one was replaced by it, and a file still being written never was one.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Broker } from '../broker/broker.ts'
import { stateRecords, StateReader } from './broker-state.ts'
import { lockData } from './data-lock.ts'
import { DiskJournal, logPath } from './disk-journal.ts'
import { decodeRecords } from './record.ts'

export interface StorageOptions {
  readonly dataDir: string
  readonly fsync: boolean
  readonly compactBytes: number
}

/** Fills `broker` from the folder and makes the folder its journal; the result gives the folder free again. */
export async function openJournal(broker: Broker, options: StorageOptions): Promise<() => Promise<void>> {
  const { dataDir } = options
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  const lock = await lockData(dataDir)
  try {
    const files = await readdir(dataDir)
    const generations = files.flatMap((name) => /^pubsub-(\d{8})\.log$/.exec(name)?.[1] ?? []).map(Number)
    const newest = Math.max(0, ...generations)
    if (newest > 0) {
      const reader = new StateReader()
      for (const record of decodeRecords(await readFile(logPath(dataDir, newest)))) reader.apply(record)
      reader.fill(broker)
    }
    const journal = new DiskJournal({ ...options, generation: newest + 1, state: () => stateRecords(broker) })
    await journal.open()
    broker.journal = journal
    const stale = files.filter((name) => /^pubsub-\d{8}\.log(\.new)?$/.test(name))
    await Promise.all(stale.map((name) => rm(join(dataDir, name), { force: true })))
    return async () => {
      await journal.close()
      await lock.release()
    }
  } catch (error) {
    await lock.release()
    throw error
  }
}
