/**
 * Turns the report of a test run into the closing lines of `npm test`.
 *
 * Nothing is skipped in silence: every file left out and every test that skipped itself has a line. A file that could not be
 * loaded or set up counts as one failure, and so does a run that vitest itself calls failed though no test did (an unhandled rejection).
 *
 * A wait that ran out says that the machine was busy or that something is stuck, not which. Its file is run again, alone: what is
 * stuck fails again, and what passes has a line, too. A check that found something wrong is final, and nothing is asked again.
 */
import { relative } from 'node:path'
import type { Report, TestRun } from './run-tests.ts'

export interface LeftOut {
  readonly name: string
  readonly reason: string
  readonly files: readonly string[]
}

export interface Summary {
  readonly passed: number
  readonly failed: number
  readonly skipped: number
  readonly lines: readonly string[]
}

/** More files than this do not fail because the machine was busy for a moment. */
const mostAgain = 3
const ranOut = /^(?:Not true within \d+ ms|(?:Test|Hook) timed out in \d+ ?ms)/

/** The files to run again: none, unless every failure of the run is a wait that ran out. */
export function filesToRunAgain({ unhandled, files }: Report): readonly string[] {
  const failures = files.flatMap(({ path, errors, tests }) =>
    [...errors, ...tests.flatMap((test) => test.errors)].map((error) => ({ path, error })),
  )
  const paths = [...new Set(failures.map(({ path }) => path))]
  const isTime = unhandled === 0 && paths.length <= mostAgain && failures.every(({ error }) => ranOut.test(error))
  return isTime ? paths : []
}

export interface Outcome extends Pick<TestRun, 'report' | 'exitCode'> {
  readonly root: string
  readonly leftOut: readonly LeftOut[]
  /** Of the files that were run again. */
  readonly again?: Pick<TestRun, 'report' | 'exitCode'> | undefined
}

export function summarize({ report, root, leftOut, again, ...run }: Outcome): Summary {
  const repeated = new Map(again?.report.files.map((file) => [file.path, file]))
  const files = report.files.map((file) => repeated.get(file.path) ?? file)
  const exitCode = again?.exitCode ?? run.exitCode
  const tests = files.flatMap(({ path, tests: all }) => all.map((test) => ({ file: relative(root, path), ...test })))
  const passed = tests.filter(({ state }) => state === 'passed').length
  const broken = files.filter(({ errors, tests: all }) => errors.length > 0 && !all.some(({ state }) => state === 'failed'))
  const counted = tests.filter(({ state }) => state === 'failed').length + broken.length
  const failed = exitCode !== 0 && counted === 0 ? 1 : counted
  const selfSkipped = tests.filter(({ state }) => state !== 'passed' && state !== 'failed')
  const skippedFiles = leftOut.reduce((count, { files: names }) => count + names.length, 0)
  const skipped = selfSkipped.length + skippedFiles
  const lines = [
    ...leftOut.map(({ name, reason, files: names }) => `skipped: ${name} (${reason}): ${names.join(', ')}`),
    ...selfSkipped.map(({ file, name }) => `skipped: ${file}: ${name} (the test skipped itself)`),
    ...[...repeated.keys()].map((path) => `run again: ${relative(root, path)} (a wait ran out while other files ran)`),
    ...(failed > counted ? [`failed: vitest ended with exit code ${exitCode} though no test failed; see above`] : []),
    `${passed} passed, ${failed} failed, ${skipped} skipped`,
  ]
  return { passed, failed, skipped, lines }
}
