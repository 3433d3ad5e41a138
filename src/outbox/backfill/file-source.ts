/**
 * An export file as the source of a backfill: one JSON object a line (NDJSON), read in pages, resumed at a byte.
 *
 * The file says what was, not what is. So by default a line counts only for an aggregate that has no event yet: a live write
 * always wins. With `whenKnown: 'emit'` the file is declared to be right, and its lines become the newest states.
 *
 * The cursor carries a hash of the bytes before it: what was read already must be the same when it goes on. What comes after
 * may have been repaired meanwhile.
 */
import { createHash } from 'node:crypto'
import { open, stat, type FileHandle } from 'node:fs/promises'
import { unlimited } from '../../core/encoding/budget.ts'
import { decodeJson } from '../../core/encoding/codec.ts'
import { errorMessage, WaybillError } from '../../core/errors.ts'
import { oneOf, resolve, wholeBetween } from '../../core/options.ts'
import type { BackfillSource } from './sources.ts'

export interface BackfillFileOptions {
  readonly path: string
  /** What a line means for an aggregate that has events: nothing, or its newest state. @default 'skip' */
  readonly whenKnown?: 'skip' | 'emit'
  /** @default 16_777_216 */
  readonly maxLineBytes?: number
}

interface Place {
  readonly offset: number
  readonly line: number
  /** SHA-256 of the bytes before `offset`, of the last few thousand at most. */
  readonly before: string
}

const rememberedBytes = 4_096
const readBytes = 65_536
const newline = 0x0a

/** Reads a file of one JSON object a line. */
export function backfillFile<Row>(options: BackfillFileOptions): BackfillSource<Row> {
  const { path, whenKnown, maxLineBytes } = resolve<Required<BackfillFileOptions>>(
    'backfillFile',
    { path: options.path, whenKnown: 'skip', maxLineBytes: 16_777_216 },
    options,
    {
      path: (given) => (typeof given === 'string' && given !== '') || 'must be the path of a file',
      whenKnown: oneOf('skip', 'emit'),
      maxLineBytes: wholeBetween(1, 1_000_000_000),
    },
  )
  return {
    description: `file ${path}`,
    unit: 'bytes',
    measure: async () => (await stat(path)).size,
    page: async (_db, { cursor, limit }) => {
      const file = await open(path, 'r')
      try {
        const start = cursor === undefined ? { offset: 0, line: 0, before: '' } : (JSON.parse(cursor) as Place)
        if (start.offset > 0 && (await hashBefore(file, start.offset)) !== start.before) throw otherFile(path, start.line)
        const { rows, offset, line } = await readRows<Row>(file, { path, start, limit, maxLineBytes })
        if (offset === start.offset) return undefined
        return {
          rows,
          cursor: JSON.stringify({ offset, line, before: await hashBefore(file, offset) } satisfies Place),
          advanced: offset - start.offset,
          current: (_tx, isNew) =>
            Promise.resolve(rows.map((row, i) => (whenKnown === 'emit' || isNew[i] === true ? row : undefined))),
        }
      } finally {
        await file.close()
      }
    },
  }
}

interface ReadOptions {
  readonly path: string
  readonly start: Place
  readonly limit: number
  readonly maxLineBytes: number
}

interface ReadRows<Row> {
  readonly rows: readonly Row[]
  readonly offset: number
  readonly line: number
}

/** Ends before a line that is not as it should be: it is refused when it is the first, and what came before it is done. */
async function readRows<Row>(file: FileHandle, { path, start, limit, maxLineBytes }: ReadOptions): Promise<ReadRows<Row>> {
  const rows: Row[] = []
  let { offset, line } = start
  let rest: Buffer = Buffer.alloc(0)
  const take = (bytes: Buffer, withBreak: number): void => {
    // Blank lines separate nothing, but files end with them.
    if (bytes.toString('latin1').trim() !== '') rows.push(parse<Row>(bytes, path, line + 1))
    offset += bytes.length + withBreak
    line += 1
  }
  try {
    for (;;) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(readBytes), 0, readBytes, offset + rest.length)
      rest = Buffer.concat([rest, buffer.subarray(0, bytesRead)])
      for (let end = rest.indexOf(newline); end >= 0 && rows.length < limit; end = rest.indexOf(newline)) {
        take(rest.subarray(0, end), 1)
        rest = rest.subarray(end + 1)
      }
      if (rows.length >= limit) break
      if (bytesRead === 0) {
        if (rest.length > 0) take(rest, 0)
        break
      }
      if (rest.length > maxLineBytes) throw tooLong(path, line + 1, maxLineBytes)
    }
  } catch (error) {
    if (rows.length === 0) throw error
  }
  return { rows, offset, line }
}

async function hashBefore(file: FileHandle, offset: number): Promise<string> {
  const length = Math.min(offset, rememberedBytes)
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, offset - length)
  return createHash('sha256').update(buffer.subarray(0, bytesRead)).digest('hex')
}

function parse<Row>(bytes: Uint8Array, path: string, line: number): Row {
  try {
    return decodeJson(bytes, unlimited) as Row
  } catch (cause) {
    throw new WaybillError(
      'INVALID_INPUT',
      `${path}: line ${line} cannot be read: ${errorMessage(cause)} Repair the line and resume; what came before it is done.`,
      { cause },
    )
  }
}

function tooLong(path: string, line: number, maxLineBytes: number): WaybillError {
  return new WaybillError(
    'TOO_LARGE',
    `${path}: line ${line} has more than ${maxLineBytes} bytes. Raise maxLineBytes, or shorten it.`,
  )
}

function otherFile(path: string, line: number): WaybillError {
  return new WaybillError(
    'REFUSED',
    `${path} is not the file that this backfill read up to line ${line}: the bytes before differ. Put that file back, or start anew.`,
  )
}
