import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { expect, test } from 'vitest'
import { mutantOf, mutantSuites } from './mutant-suites.ts'
import { repositoryRoot, runCommand } from './run-command.ts'

test('every mutant that a suite keeps is registered, and every registered one is kept', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-mutants-'))
  try {
    const file = join(folder, 'tests.json')
    const files = mutantSuites.map((suite) => suite.file)
    await runCommand(['vitest', 'list', '--no-static-parse', `--json=${file}`, ...files])
    const tests = JSON.parse(await readFile(file, 'utf8')) as { name: string; file: string }[]
    const kept = mutantSuites.map((suite) => {
      const names = tests.filter((each) => relative(repositoryRoot, each.file) === suite.file).map(({ name }) => name)
      return [suite.file, names.flatMap((name) => mutantOf(suite, name) ?? []).toSorted()]
    })
    expect(Object.fromEntries(kept)).toEqual(
      Object.fromEntries(mutantSuites.map((suite) => [suite.file, suite.mutants.toSorted()])),
    )
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}, 180_000)

test('there are mutants of every area, twenty-five and more', () => {
  expect(new Set(mutantSuites.map(({ area }) => area))).toEqual(new Set(['relay', 'consumer', 'commands', 'kafka']))
  expect(mutantSuites.flatMap(({ mutants }) => mutants).length).toBeGreaterThanOrEqual(25)
})
