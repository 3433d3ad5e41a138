/**
 * The journal as an append-only log on disk, written by group commit.
 *
 * Everything noted while one write is under way goes out with the next, in order; `flushed` resolves when what was
 * noted before it has been written (and synced, if asked for). A written log survives the death of the process; a
 * synced one that of the machine. When the log has grown far beyond what it describes, the state is written to a
 * new file, which replaces it in one rename. After a failed write nothing is confirmed any more.
 */
import { open, rename, rm } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import type { Journal, ResourceType, Retained } from '../model/journal.ts'
import type { Message } from '../model/message.ts'
import { PubsubServerError } from '../model/server-error.ts'
import type { Snapshot } from '../model/snapshot.ts'
import { encodeRecord, toLogged, toLoggedList } from './record.ts'
import type { Record } from './record.ts'

export interface DiskJournalOptions {
  readonly dataDir: string
  /** The number of the file to write; it must be above all there are. */
  readonly generation: number
  /** The whole state as records, for a new file. */
  readonly state: () => Iterable<Record>
  /** Sync to the disk before confirming. */
  readonly fsync: boolean
  /** A log is rewritten when it is larger than this and four times what it was when new. */
  readonly compactBytes: number
}

export function logPath(dataDir: string, generation: number): string {
  return join(dataDir, `pubsub-${String(generation).padStart(8, '0')}.log`)
}

const writeBytes = 1024 * 1024

export class DiskJournal implements Journal {
  readonly #options: DiskJournalOptions
  #generation: number
  #file: FileHandle | null = null
  #fileBytes = 0
  #newFileBytes = 0
  #noted: Buffer[] = []
  #settled = new Map<string, number[]>()
  #writing: Promise<void> | null = null
  #next: Promise<void> | null = null
  #failure: Error | null = null

  constructor(options: DiskJournalOptions) {
    this.#options = options
    this.#generation = options.generation
  }

  /** Writes the state to the first file of this process. */
  async open(): Promise<void> {
    await this.#rewrite()
  }

  put(type: ResourceType, name: string, value: object): void {
    this.#note({ kind: 'put', type, name, value })
  }

  remove(type: ResourceType, name: string): void {
    this.#note({ kind: 'remove', type, name })
  }

  publish(topic: string, messages: readonly Message[]): void {
    this.#note({ kind: 'publish', topic, messages: messages.map((message) => toLogged(message)) })
  }

  settle(subscription: string, message: Message): void {
    const numbers = this.#settled.get(subscription)
    if (numbers === undefined) this.#settled.set(subscription, [message.number])
    else numbers.push(message.number)
  }

  takeSnapshot({ resource, takenAt, unacked }: Snapshot): void {
    this.#note({ kind: 'snapshot', resource, takenAt, messages: unacked.map((message) => toLogged(message)) })
  }

  reset(subscription: string, messages: readonly Retained[]): void {
    this.#note({ kind: 'reset', subscription, messages: toLoggedList(messages) })
  }

  flushed(): Promise<void> | undefined {
    if (this.#failure !== null) return Promise.reject(this.#failure)
    const hasNotes = this.#noted.length > 0 || this.#settled.size > 0
    if (!hasNotes && this.#writing === null) return undefined
    if (!hasNotes) return this.#writing ?? undefined
    this.#next ??= this.#writeNext(this.#writing)
    return this.#next
  }

  async close(): Promise<void> {
    await this.flushed()
    await this.#file?.close()
    this.#file = null
  }

  /** Settlements gathered so far go first: a later record may bring those messages back. */
  #note(record: Record): void {
    this.#noteSettled()
    this.#noted.push(...encodeRecord(record))
  }

  #noteSettled(): void {
    if (this.#settled.size === 0) return
    for (const [subscription, numbers] of this.#settled) {
      this.#noted.push(...encodeRecord({ kind: 'settle', subscription, numbers }))
    }
    this.#settled = new Map()
  }

  /** Starts when the write before it has ended and the loop has taken in what else is waiting. */
  async #writeNext(before: Promise<void> | null): Promise<void> {
    await before?.catch(() => {})
    await new Promise((resolve) => setImmediate(resolve))
    const write = this.#write()
    this.#writing = write
    this.#next = null
    try {
      await write
    } catch (cause) {
      this.#failure ??= new PubsubServerError(
        'UNAVAILABLE',
        `The Pub/Sub server cannot write its log in ${this.#options.dataDir}.`,
        {
          cause,
        },
      )
      throw this.#failure
    } finally {
      if (this.#writing === write) this.#writing = null
    }
  }

  async #write(): Promise<void> {
    this.#noteSettled()
    const { compactBytes } = this.#options
    if (this.#fileBytes > Math.max(compactBytes, this.#newFileBytes * 4)) return this.#rewrite()
    const parts = this.#noted
    this.#noted = []
    const file = this.#file
    if (file === null) throw new Error('the log is closed')
    this.#fileBytes += await writeAll(file, parts)
    if (this.#options.fsync) await file.datasync()
  }

  /** The state holds everything noted so far, so those notes need not be written. */
  async #rewrite(): Promise<void> {
    const parts = [...this.#options.state()].flatMap(encodeRecord)
    this.#noted = []
    const { dataDir } = this.#options
    const path = logPath(dataDir, this.#generation)
    const file = await open(`${path}.new`, 'w', 0o600)
    const bytes = await writeAll(file, parts)
    await file.sync()
    await rename(`${path}.new`, path)
    const old = this.#file
    this.#file = file
    this.#fileBytes = this.#newFileBytes = bytes
    this.#generation += 1
    await old?.close()
    if (old !== null) await rm(logPath(dataDir, this.#generation - 2), { force: true })
  }
}

/** Writes the parts in pieces of about a megabyte; returns how many bytes that were. */
async function writeAll(file: FileHandle, parts: readonly Buffer[]): Promise<number> {
  let total = 0
  for (let from = 0; from < parts.length;) {
    let size = 0
    let to = from
    while (to < parts.length && size < writeBytes) size += (parts[to++] as Buffer).length
    const piece = to === from + 1 ? (parts[from] as Buffer) : Buffer.concat(parts.slice(from, to), size)
    for (let at = 0; at < size;) at += (await file.write(piece, at, size - at)).bytesWritten
    total += size
    from = to
  }
  return total
}
