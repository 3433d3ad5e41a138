import { mkdir, mkdtemp, open, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { fileBlobStore } from './file-blob-store.ts'

const signal = new AbortController().signal
const bytes = Buffer.from('reel')
let place: string
let synced: Set<number>

/** Notes each file and folder that is made durable, by its inode. */
beforeEach(async () => {
  place = await mkdtemp(join(tmpdir(), 'blobs-'))
  synced = new Set()
  const probe = await open(place, 'r')
  const handles = Object.getPrototypeOf(probe) as typeof probe
  await probe.close()
  const sync = handles.sync
  vi.spyOn(handles, 'sync').mockImplementation(async function (this: typeof probe) {
    synced.add((await this.stat()).ino)
    await sync.call(this)
  })
})

afterEach(async () => {
  vi.restoreAllMocks()
  await rm(place, { recursive: true })
})

/** Of these places, those that were made durable. */
async function syncedOf(places: readonly string[]): Promise<readonly string[]> {
  const found = await Promise.all(
    places.map(async (each) => ({ each, isSynced: synced.has((await stat(join(place, each))).ino) })),
  )
  return found.filter(({ isSynced }) => isSynced).map(({ each }) => each)
}

test('a blob lasts with every folder that was made for it, the one above the store too', async () => {
  const store = fileBlobStore({ folder: join(place, 'service', 'blobs') })
  await store.put('films/2025/f1', bytes, { signal })
  const all = ['', 'service', 'service/blobs', 'service/blobs/films', 'service/blobs/films/2025', 'service/blobs/films/2025/f1']
  expect(await syncedOf(all)).toEqual(all)
})

test('a blob lasts with the folders of its store, also where another writer has just made them', async () => {
  await mkdir(join(place, 'blobs', 'films', '2025'), { recursive: true })
  const store = fileBlobStore({ folder: join(place, 'blobs') })
  await store.put('films/2025/f1', bytes, { signal })
  const all = ['', 'blobs', 'blobs/films', 'blobs/films/2025', 'blobs/films/2025/f1']
  expect(await syncedOf(all)).toEqual(all.slice(1))
})

test('a blob that is there already lasts with its folders: whoever wrote it may not have come that far', async () => {
  const store = fileBlobStore({ folder: join(place, 'blobs') })
  await store.put('films/2025/f1', bytes, { signal })
  synced.clear()
  await store.put('films/2025/f1', bytes, { signal })
  const all = ['blobs', 'blobs/films', 'blobs/films/2025', 'blobs/films/2025/f1']
  expect(await syncedOf(all)).toEqual(all)
})
