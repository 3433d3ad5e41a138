/**
 * Plays mutants of the sources: plants each in a copy of the tree and runs the test there that must fail for it.
 *
 * A mutant is caught only if that test ran and failed. A copy that cannot be loaded, or a test that was not found, catches nothing.
 */
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import type { SourceMutant } from '../test/mutants/source-mutant.ts'
import { repositoryRoot } from './run-command.ts'
import { runTests } from './run-tests.ts'

const left = new Set(['node_modules', '.git', 'dist', '.cache'])

/** Calls `play` with a function that says of one mutant whether it was caught; the copy of the tree is gone afterwards. */
export async function withMutableTree(
  play: (isCaught: (mutant: SourceMutant) => Promise<boolean>) => Promise<void>,
): Promise<void> {
  const copy = await mkdtemp(join(tmpdir(), 'waybill-source-mutants-'))
  try {
    await cp(repositoryRoot, copy, { recursive: true, filter: (path) => !left.has(basename(path)) })
    await symlink(join(repositoryRoot, 'node_modules'), join(copy, 'node_modules'))
    await play((mutant) => isCaught(copy, mutant))
  } finally {
    await rm(copy, { recursive: true, force: true })
  }
}

async function isCaught(copy: string, { file, from, to, caughtBy, mutant }: SourceMutant): Promise<boolean> {
  const path = join(copy, file)
  const original = await readFile(path, 'utf8')
  await writeFile(path, planted(original, { file, from, to }))
  try {
    const name = caughtBy.test.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
    const { report, output } = await runTests([caughtBy.file, '-t', name], { cwd: copy })
    const tests = report.files.flatMap((each) => each.tests).filter((test) => test.name.includes(caughtBy.test))
    const failed = tests.some(({ state }) => state === 'failed')
    if (tests.length === 0) console.error(`${mutant}: the test was not run.\n${output.slice(-2_000)}`)
    return failed
  } finally {
    await writeFile(path, original)
  }
}

/** The text of a file with the mistake in it. */
export function planted(text: string, { file, from, to }: Pick<SourceMutant, 'file' | 'from' | 'to'>): string {
  const parts = text.split(from)
  if (parts.length !== 2)
    throw new Error(`${file}: the text to replace stands there ${parts.length - 1} times, not once: ${from}`)
  return parts.join(to)
}
