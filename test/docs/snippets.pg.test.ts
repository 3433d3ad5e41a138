/**
 * What the README shows compiles and runs as it stands: each TypeScript block is a program, run on a database of its own.
 */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { repositoryRoot, runCommand } from '../../scripts/run-command.ts'
import { testDatabase } from '../setup/test-database.ts'

const db = await testDatabase()
const text = await readFile(join(repositoryRoot, 'README.md'), 'utf8')
const snippets = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((match, index) => ({
  file: `readme-${index + 1}.ts`,
  code: match[1] ?? '',
}))

/** A user's compiler settings: strict, without the ones that only a library needs. */
const tsconfig = {
  extends: '../../tsconfig.json',
  compilerOptions: { noPropertyAccessFromIndexSignature: false, isolatedDeclarations: false, declaration: false },
  include: ['*.ts'],
}
let folder: string

beforeAll(async () => {
  // Inside the repository, so that packages the snippets import are found.
  await mkdir(join(repositoryRoot, '.cache'), { recursive: true })
  folder = await mkdtemp(join(repositoryRoot, '.cache', 'snippets-'))
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(tsconfig))
  for (const { file, code } of snippets) {
    const local = code.replaceAll(/from 'waybill(\/[\w-]+)?'/g, (_all, path?: string) => `from '../../src${path ?? ''}/index.ts'`)
    await writeFile(join(folder, file), local)
  }
})

afterAll(async () => rm(folder, { recursive: true, force: true }))

describe('the README', () => {
  test('has something to show', () => {
    expect(snippets.length).toBeGreaterThan(0)
  })

  test('compiles', async () => {
    const { code, output } = await runCommand(['tsc', '--noEmit', '-p', folder])
    expect(output).toBe('')
    expect(code).toBe(0)
  })

  test.each(snippets)('runs: $file', async ({ file }) => {
    const { code, output } = await runCommand(['node', join(folder, file)], { env: { DATABASE_URL: db.url } })
    expect(output).toBe('')
    expect(code).toBe(0)
  })
})
