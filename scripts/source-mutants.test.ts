import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { sourceMutants } from '../test/mutants/source-mutants.ts'
import { repositoryRoot } from './run-command.ts'
import { planted } from './source-mutants.ts'

test('every mutant of the sources changes text that is there, once', async () => {
  for (const mutant of sourceMutants) {
    const text = await readFile(join(repositoryRoot, mutant.file), 'utf8')
    expect(planted(text, mutant)).not.toBe(text)
  }
})

test('no two mutants of the sources have one name', () => {
  expect(sourceMutants.map(({ mutant }) => mutant)).toEqual([...new Set(sourceMutants.map(({ mutant }) => mutant))])
})
