/**
 * Blobs as files of one folder: for one machine, or for a volume that all writers and readers share.
 *
 * A blob is written beside its place, flushed and moved there, so a name never stands for half the bytes. Expiring takes two
 * steps: an old blob is first renamed, and removed only if it is still old at the next look. In between it is found under both
 * names, so that a writer who uses the same bytes at that moment loses nothing.
 */
import { randomUUID } from 'node:crypto'
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { dirname, join, resolve as absolute } from 'node:path'
import { assertBlobKey, type BlobStore } from '../core/encoding/blob-store.ts'
import { systemClock, type Clock } from '../core/service/clock.ts'
import { WaybillError } from '../core/errors.ts'
import { resolve } from '../core/options.ts'

export interface FileBlobStoreOptions {
  /** The folder; made when it is first needed. */
  readonly folder: string
  readonly clock?: Clock
}

/** Keys have no dot, so these endings cannot be part of one. */
const expiredEnding = '.expired'
const unfinishedEnding = '.part'

/** An unfinished file of this age belongs to a writer that died. */
const abandonedMs = 86_400_000

export function fileBlobStore(options: FileBlobStoreOptions): Required<BlobStore> {
  const { folder, clock } = resolve<Required<FileBlobStoreOptions>>(
    'fileBlobStore',
    { folder: options.folder, clock: systemClock },
    options,
    { folder: (path) => (typeof path === 'string' && path !== '') || 'must be the path of a folder' },
  )
  const pathOf = (key: string): string => {
    assertBlobKey(key)
    return join(folder, ...key.split('/'))
  }
  return {
    put: async (key, bytes) => {
      const path = pathOf(key)
      const isThere = await touch(path, bytes.length, clock)
      const made = isThere ? undefined : await writeWhole({ path, bytes, clock })
      // Whoever wrote what is there may not have come that far yet.
      for (const each of foldersOf(path, folder, made)) await syncFolder(each)
    },
    get: async (key, { maxBytes, signal }) => {
      const path = pathOf(key)
      // Twice, because it may be renamed, or written anew, between two looks.
      for (const name of [path, path + expiredEnding, path]) {
        const bytes = await readWhole(name, { key, maxBytes, signal })
        if (bytes !== undefined) return bytes
      }
      return undefined
    },
    expire: (olderThanMs) => expireFolder(folder, olderThanMs, clock),
  }
}

/** Makes a blob that is there, whole, new again. */
async function touch(path: string, size: number, clock: Clock): Promise<boolean> {
  const file = await ifThere(open(path, 'r+'))
  if (file === undefined) return false
  try {
    if ((await file.stat()).size !== size) return false
    const now = new Date(clock.nowMs())
    await file.utimes(now, now)
    await file.sync()
  } finally {
    await file.close()
  }
  // Renamed meanwhile, it is found under its other name; but that name is not ours to keep alive.
  return (await ifThere(stat(path))) !== undefined
}

interface Write {
  readonly path: string
  readonly bytes: Uint8Array
  readonly clock: Clock
}

/** Returns the first folder that was made for it, if one was. */
async function writeWhole({ path, bytes, clock }: Write): Promise<string | undefined> {
  const made = await mkdir(dirname(path), { recursive: true })
  const unfinished = `${path}.${randomUUID()}${unfinishedEnding}`
  const file = await open(unfinished, 'wx', 0o640)
  try {
    const now = new Date(clock.nowMs())
    await file.writeFile(bytes)
    await file.utimes(now, now)
    await file.sync()
    await file.close()
    await rename(unfinished, path)
  } catch (error) {
    await file.close().catch(() => {})
    await rm(unfinished, { force: true })
    throw error
  }
  return made
}

/**
 * The folders whose names have to last with that of the file: from its own up to the store's, because another writer may have made
 * them a moment ago, and on to the one above the first that was made now.
 */
function foldersOf(path: string, folder: string, made: string | undefined): readonly string[] {
  const tops = [absolute(folder), ...(made === undefined ? [] : [dirname(absolute(made))])]
  const top = Math.min(...tops.map(({ length }) => length))
  const folders: string[] = []
  for (let each = dirname(absolute(path)); each.length >= top; each = dirname(each)) {
    folders.push(each)
    if (each === dirname(each)) break
  }
  return folders
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

async function readWhole(
  path: string,
  { key, maxBytes, signal }: { readonly key: string; readonly maxBytes: number; readonly signal: AbortSignal },
): Promise<Uint8Array | undefined> {
  const file = await ifThere(open(path, 'r'))
  if (file === undefined) return undefined
  try {
    const { size } = await file.stat()
    if (size > maxBytes)
      throw new WaybillError('CORRUPT', `The blob ${key} has ${size} bytes instead of ${maxBytes}.`, { details: { key } })
    return await file.readFile({ signal })
  } finally {
    await file.close()
  }
}

/** One walk: old blobs are renamed, those renamed before and still old are removed, those used since come back. */
async function expireFolder(folder: string, olderThanMs: number, clock: Clock): Promise<number> {
  const entries = (await ifThere(readdir(folder, { recursive: true, withFileTypes: true }))) ?? []
  let removed = 0
  for (const entry of entries) {
    if (!entry.isFile()) continue
    const path = join(entry.parentPath, entry.name)
    const found = await ifThere(stat(path))
    if (found === undefined) continue
    const ageMs = clock.nowMs() - found.mtimeMs
    if (path.endsWith(unfinishedEnding)) {
      if (ageMs > abandonedMs) await rm(path, { force: true })
    } else if (path.endsWith(expiredEnding)) {
      const name = path.slice(0, -expiredEnding.length)
      if (ageMs <= olderThanMs && (await ifThere(stat(name))) === undefined) await ifThere(rename(path, name))
      else {
        await rm(path, { force: true })
        removed += 1
      }
    } else if (ageMs > olderThanMs) await ifThere(rename(path, path + expiredEnding))
  }
  return removed
}

async function ifThere<Result>(result: Promise<Result>): Promise<Result | undefined> {
  try {
    return await result
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
