/**
 * Turns the report of a test run into the closing lines of `npm test`.
 *
 * Nothing is skipped in silence: every file left out and every test that skipped itself has a line. A file that could not be
 * loaded or set up counts as one failure, and so does a run that vitest itself calls failed though no test did (an unhandled rejection),
 * and one without any file.
 *
 * A failure is final, and nothing is run again: a wait that ran out may have seen a wrong result all along, such as a doubled
 * effect, and a second run would forgive it. Waits are patient instead.
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

export interface Outcome extends Pick<TestRun, 'report' | 'exitCode' | 'signal'> {
  readonly root: string
  readonly leftOut: readonly LeftOut[]
}

export function summarize({ report: { files }, exitCode, signal, root, leftOut }: Outcome): Summary {
  const tests = files.flatMap(({ path, tests: all }) => all.map((test) => ({ file: relative(root, path), ...test })))
  const passed = tests.filter(({ state }) => state === 'passed').length
  const broken = files.filter(({ errors, tests: all }) => errors.length > 0 && !all.some(({ state }) => state === 'failed'))
  const counted = tests.filter(({ state }) => state === 'failed').length + broken.length
  const failed = (exitCode !== 0 || files.length === 0) && counted === 0 ? 1 : counted
  const selfSkipped = tests.filter(({ state }) => state !== 'passed' && state !== 'failed')
  const skippedFiles = leftOut.reduce((count, { files: names }) => count + names.length, 0)
  const skipped = selfSkipped.length + skippedFiles
  const lines = [
    ...leftOut.map(({ name, reason, files: names }) => `skipped: ${name} (${reason}): ${names.join(', ')}`),
    ...selfSkipped.map(({ file, name }) => `skipped: ${file}: ${name} (the test skipped itself)`),
    ...(failed > counted ? [`failed: ${reasonOf({ files, exitCode, signal })}`] : []),
    `${passed} passed, ${failed} failed, ${skipped} skipped`,
  ]
  return { passed, failed, skipped, lines }
}

/** Why a run failed in which no test did. */
function reasonOf({ files, exitCode, signal }: Report & Pick<TestRun, 'exitCode' | 'signal'>): string {
  if (signal !== undefined) return `vitest was ended by ${signal}`
  if (files.length === 0) return 'no test ran, since no file fits, or none could be started; see above'
  return `vitest ended with exit code ${exitCode} though no test failed; see above`
}
