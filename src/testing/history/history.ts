/**
 * Where histories are kept: in memory, or in a file of one JSON object a line that any number of processes append to.
 *
 * A line is handed to the operating system before `record` returns, so a process that is killed afterwards has recorded it.
 * Each line is one write at the end of the file: processes may share a file, and each one's lines stay in their order.
 */
import { appendFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { WaybillError } from '../../core/errors.ts'
import type { HistoryEntry } from './entry.ts'

/** Takes note of what happens, under one name. */
export interface Recorder {
  record(entry: HistoryEntry): void
}

export interface History extends Recorder {
  readonly entries: readonly HistoryEntry[]
  /** A recorder of another name for the same history. */
  as(source: string): Recorder
}

/** A history in memory. */
export function createHistory(options: { readonly source?: string } = {}): History {
  const entries: HistoryEntry[] = []
  const as = (source: string | undefined): Recorder => ({ record: (entry) => void entries.push(signed(entry, source)) })
  return { ...as(options.source), entries, as }
}

/** A recorder that appends to a file. It is made if it is not there. */
export function historyFile(path: string, options: { readonly source: string }): Recorder {
  return { record: (entry) => appendFileSync(path, `${historyLine(signed(entry, options.source))}\n`) }
}

/** An entry as a line of such a file, for those who send it elsewhere. */
export function historyLine(entry: HistoryEntry): string {
  return JSON.stringify(entry)
}

/** The entries of a file. A last line that was cut off in the middle by a crash of the machine is left out. */
export async function* readHistoryFile(path: string): AsyncGenerator<HistoryEntry> {
  await using file = await open(path)
  let torn: { readonly error: unknown; readonly line: number } | undefined
  let line = 0
  for await (const text of file.readLines()) {
    line += 1
    if (torn !== undefined) throw unreadable(path, torn.line, torn.error)
    if (text === '') continue
    try {
      yield JSON.parse(text) as HistoryEntry
    } catch (error) {
      torn = { error, line }
    }
  }
}

function signed(entry: HistoryEntry, source: string | undefined): HistoryEntry {
  return source === undefined || entry.source !== undefined ? entry : { source, ...entry }
}

function unreadable(path: string, line: number, cause: unknown): WaybillError {
  return new WaybillError('CORRUPT', `Line ${line} of the history in ${path} is no JSON. Only its last line may be cut off.`, {
    cause,
  })
}
