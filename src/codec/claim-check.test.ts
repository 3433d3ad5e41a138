import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'

import type { BlobStore } from '../core/encoding/blob-store.ts'
import { jsonCodec } from '../core/encoding/codec.ts'
import { state } from '../core/event/event.ts'
import { readData, stream } from '../core/event/stream.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { createBlobRetention } from './blob-retention.ts'
import { claimCheck, type ClaimCheckOptions } from './claim-check.ts'
import { claimContentType } from './claim-reference.ts'
import { fileBlobStore } from './file-blob-store.ts'

const videoSchema = z.object({ title: z.string() })
const video = jsonCodec(videoSchema)
const signal = new AbortController().signal
let root = ''
let folders = 0

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'waybill-blobs-'))
})
afterAll(() => rm(root, { recursive: true }))

function newFolder(): string {
  return join(root, `store-${(folders += 1)}`)
}

async function filesOf(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => [])
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
}

function inFiles(options: Partial<ClaimCheckOptions> = {}) {
  const folder = newFolder()
  return { folder, codec: claimCheck(video, { store: fileBlobStore({ folder }), thresholdBytes: 100, ...options }) }
}

/** A reference with some fields replaced, in our order of fields. */
function forged(bytes: Uint8Array, fields: Record<string, unknown>): Uint8Array {
  return Buffer.from(JSON.stringify({ ...(JSON.parse(Buffer.from(bytes).toString()) as object), ...fields }))
}

describe('a payload', () => {
  test('up to the threshold travels as it is, and one byte more is kept in the store', async () => {
    const { folder, codec } = inFiles()
    const fits = { title: 'x'.repeat(100 - '{"title":""}'.length) }
    const small = await codec.encode(fits)
    expect(small.length).toBe(100)
    expect(codec.contentTypeOf?.(small)).toBe('application/json')
    expect(await filesOf(folder)).toEqual([])

    const large = { title: `${fits.title}x` }
    const reference = await codec.encode(large)
    expect(codec.contentTypeOf?.(reference)).toBe(claimContentType)
    expect(await filesOf(folder)).toHaveLength(1)
    expect(JSON.parse(Buffer.from(reference).toString())).toMatchObject({ bytes: 101, contentType: 'application/json' })
    expect(await codec.decode(small)).toEqual(fits)
    expect(await codec.decode(reference)).toEqual(large)
  })

  test('that looks like a reference is never taken for one', async () => {
    const anything = jsonCodec(z.record(z.string(), z.unknown()))
    const codec = claimCheck(anything, { store: fileBlobStore({ folder: newFolder() }), thresholdBytes: 100_000 })
    const sly = { 'waybill-claim': 1, key: '../../etc/passwd', sha256: '', bytes: 1 }
    expect(await codec.decode(await codec.encode(sly))).toEqual(sly)
  })

  test('is upcast and validated by its event type like any other', async () => {
    const { codec } = inFiles()
    const streams = stream('video', { topic: 'video.events', events: { VideoPublished: state(codec) } })
    const data = { title: 'y'.repeat(500) }
    expect(await readData(streams.VideoPublished, await codec.encode(data), 1)).toEqual(data)
  })

  test('that is larger than the limit is refused to the writer, and unread to the reader', async () => {
    const store = fileBlobStore({ folder: newFolder() })
    const wide = claimCheck(video, { store, thresholdBytes: 100 })
    const narrow = claimCheck(video, { store, thresholdBytes: 100, maxBytes: 1_000 })
    const data = { title: 'z'.repeat(2_000) }
    await expect(narrow.encode(data)).rejects.toMatchObject({ code: 'TOO_LARGE' })
    await expect(narrow.decode(await wide.encode(data))).rejects.toMatchObject({ code: 'TOO_LARGE' })
  })

  test('that does not fit its schema is refused before anything is kept', async () => {
    const { folder, codec } = inFiles()
    await expect(codec.encode({ title: 7 } as never)).rejects.toMatchObject({ code: 'INVALID_INPUT' })
    expect(await filesOf(folder)).toEqual([])
  })
})

describe('a reader refuses', () => {
  const large = { title: 'a'.repeat(300) }

  test.each([
    ['changed bytes', (text: string) => text.replace('aaa', 'aab')],
    ['missing bytes', (text: string) => text.slice(0, -1)],
    ['more bytes', (text: string) => `${text} `],
  ])('a blob with %s', async (_, tamper) => {
    const { folder, codec } = inFiles()
    const reference = await codec.encode(large)
    const [file] = await filesOf(folder)
    await writeFile(file!, tamper(JSON.stringify(large)))
    await expect(codec.decode(reference)).rejects.toMatchObject({ code: 'CORRUPT' })
  })

  test.each([
    ['a URL', { key: 'http://169.254.169.254/latest/meta-data' }],
    ['a file URL', { key: 'file:///etc/passwd' }],
    ['a path out of the store', { key: 'claims/../../secret' }],
    ['a key that is not of its hash', { key: `claims/aa/${'a'.repeat(64)}` }],
    ['a hash that is none', { sha256: '../x' }],
    ['a size that is none', { bytes: '300' }],
    ['another content type', { contentType: 'text/html' }],
  ])('a reference with %s, without asking the store', async (_, fields) => {
    const asked: string[] = []
    const kept = fileBlobStore({ folder: newFolder() })
    const store: BlobStore = { put: kept.put, get: (key) => (asked.push(key), Promise.resolve(new Uint8Array())) }
    const codec = claimCheck(video, { store, thresholdBytes: 100 })
    const reference = await codec.encode(large)
    await expect(codec.decode(forged(reference, fields))).rejects.toMatchObject({ code: 'CORRUPT' })
    expect(asked).toEqual([])
  })

  test('a reference of another prefix', async () => {
    const store = fileBlobStore({ folder: newFolder() })
    const writer = claimCheck(video, { store, thresholdBytes: 100, prefix: 'billing/' })
    const reader = claimCheck(video, { store, thresholdBytes: 100, prefix: 'orders/' })
    await expect(reader.decode(await writer.encode(large))).rejects.toMatchObject({ code: 'CORRUPT' })
  })

  test('to guess when the blob is gone: it may come back, so the error can be retried', async () => {
    const { folder, codec } = inFiles()
    const reference = await codec.encode(large)
    await rm(folder, { recursive: true })
    await expect(codec.decode(reference)).rejects.toMatchObject({ code: 'NOT_FOUND', retryable: true })
  })
})

describe('a store', () => {
  test('that fails is UNAVAILABLE to the writer, with its own reason as the cause', async () => {
    const cause = new Error('disk on fire')
    const store: BlobStore = { put: () => Promise.reject(cause), get: () => Promise.reject(cause) }
    const codec = claimCheck(video, { store, thresholdBytes: 1 })
    await expect(codec.encode({ title: 'x' })).rejects.toMatchObject({ code: 'UNAVAILABLE', retryable: true, cause })
  })

  test('that does not answer is UNAVAILABLE after the time-out, and is told that nobody waits', async () => {
    let told: AbortSignal | undefined
    const store: BlobStore = {
      put: (_key, _bytes, options) => ((told = options.signal), new Promise<never>(() => {})),
      get: () => new Promise<never>(() => {}),
    }
    const codec = claimCheck(video, { store, thresholdBytes: 1, timeoutMs: 5 })
    await expect(codec.encode({ title: 'x' })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    expect(told?.aborted).toBe(true)
  })

  test.each(['../x', '/etc/passwd', 'a//b', 'a/./b', 'A', 'a.b', ''])('takes no key such as %j', async (key) => {
    const store = fileBlobStore({ folder: newFolder() })
    await expect(store.put(key, new Uint8Array(1), { signal })).rejects.toMatchObject({ code: 'CORRUPT' })
    await expect(store.get(key, { signal, maxBytes: 1 })).rejects.toMatchObject({ code: 'CORRUPT' })
  })

  test('of files replaces a file that is not whole', async () => {
    const { folder, codec } = inFiles()
    const data = { title: 'b'.repeat(300) }
    await codec.encode(data)
    const [file] = await filesOf(folder)
    await writeFile(file!, 'half')
    expect(await codec.decode(await codec.encode(data))).toEqual(data)
  })
})

describe('retention of files', () => {
  const dayMs = 86_400_000

  function aged() {
    const folder = newFolder()
    const clock = createFakeClock(Date.now())
    const store = fileBlobStore({ folder, clock })
    const retention = createBlobRetention({ store, keepMs: 10 * dayMs, clock })
    return { folder, clock, store, pass: () => retention.pass(signal), codec: claimCheck(video, { store, thresholdBytes: 1 }) }
  }

  test('removes what nobody has written for that long, and nothing younger', async () => {
    const { folder, clock, codec, pass } = aged()
    const old = await codec.encode({ title: 'old' })
    clock.setNow(clock.nowMs() + 9 * dayMs)
    expect(await pass()).toBe('idle')
    expect(await codec.decode(old)).toEqual({ title: 'old' })
    clock.setNow(clock.nowMs() + 2 * dayMs)
    await pass()
    expect(await codec.decode(old)).toEqual({ title: 'old' })
    expect(await pass()).toBe('more')
    await expect(codec.decode(old)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    expect(await filesOf(folder)).toEqual([])
  })

  test('keeps bytes that were written again, also when that was while they were being expired', async () => {
    const { clock, codec, pass } = aged()
    const reference = await codec.encode({ title: 'again' })
    clock.setNow(clock.nowMs() + 9 * dayMs)
    await codec.encode({ title: 'again' })
    clock.setNow(clock.nowMs() + 9 * dayMs)
    await pass()
    await pass()
    expect(await codec.decode(reference)).toEqual({ title: 'again' })

    clock.setNow(clock.nowMs() + 9 * dayMs)
    await pass()
    await codec.encode({ title: 'again' })
    await pass()
    await pass()
    expect(await codec.decode(reference)).toEqual({ title: 'again' })
  })
})
