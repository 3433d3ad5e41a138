import { chmodSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import { afterEach, beforeEach, expect, test, vi } from 'vitest'

import { cached, temporaryFolder } from './cache-folder.ts'

let cacheDir: string
beforeEach(() => {
  cacheDir = mkdtempSync(join(tmpdir(), 'waybill-test-'))
})
afterEach(() => {
  vi.unstubAllEnvs()
  rmSync(cacheDir, { recursive: true })
})

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

test('the files of services go where the environment says, and a folder that does not serve is refused by name', () => {
  chmodSync(cacheDir, 0o755)
  vi.stubEnv('WAYBILL_SERVICE_FOLDER', cacheDir)
  expect(dirname(temporaryFolder('service-'))).toBe(cacheDir)
  vi.stubEnv('WAYBILL_SERVICE_FOLDER', join(cacheDir, 'nowhere'))
  expect(() => temporaryFolder('service-')).toThrow(`WAYBILL_SERVICE_FOLDER is "${join(cacheDir, 'nowhere')}"`)
  vi.stubEnv('WAYBILL_SERVICE_FOLDER', undefined)
  const usual = temporaryFolder('service-')
  expect(dirname(usual)).not.toBe(cacheDir)
  rmSync(usual, { recursive: true })
})
