import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterEach, beforeEach, expect, test } from 'vitest'

import { cached } from './cache-folder.ts'

let cacheDir: string
beforeEach(() => {
  cacheDir = mkdtempSync(join(tmpdir(), 'waybill-test-'))
})
afterEach(() => rmSync(cacheDir, { recursive: true }))

test('what is in the cache is not built again', async () => {
  let builds = 0
  const build = async (folder: string): Promise<void> => writeFileSync(join(folder, 'file'), String((builds += 1)))
  expect(await cached(cacheDir, 'thing', build)).toBe(await cached(cacheDir, 'thing', build))
  expect(builds).toBe(1)
})

test('builders at the same time end with one complete folder', async () => {
  const begun = Promise.withResolvers<void>()
  let builders = 0
  const build = async (folder: string): Promise<void> => {
    builders += 1
    if (builders === 10) begun.resolve()
    await begun.promise
    writeFileSync(join(folder, 'file'), 'complete')
  }
  await Promise.all(Array.from({ length: 10 }, () => cached(cacheDir, 'thing', build)))
  expect(new Set(readdirSync(cacheDir, { recursive: true, encoding: 'utf8' }))).toEqual(new Set(['thing', join('thing', 'file')]))
})

test('a build that fails leaves nothing behind, and the next one may succeed', async () => {
  const fail = async (folder: string): Promise<void> => {
    writeFileSync(join(folder, 'half'), '')
    throw new Error('disk full')
  }
  await expect(cached(cacheDir, 'thing', fail)).rejects.toThrow('disk full')
  expect(readdirSync(cacheDir)).toEqual([])
  await cached(cacheDir, 'thing', async () => {})
  expect(readdirSync(cacheDir)).toEqual(['thing'])
})
