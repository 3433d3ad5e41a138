/**
 * Turns vitest's JSON report into the closing lines of `npm test`.
 *
 * Nothing is skipped in silence: every file left out and every test that skipped itself has a line. A file that could not be
 * loaded or set up counts as one failure, and so does a run that vitest itself calls failed though no test did (an unhandled rejection).
 */
import { relative } from 'node:path'

export interface Report {
  readonly testResults: readonly {
    readonly name: string
    readonly status: string
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[]
  }[]
}

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

export function summarize(run: { report: Report; exitCode: number; root: string; leftOut: readonly LeftOut[] }): Summary {
  const { testResults } = run.report
  const tests = testResults.flatMap(({ name, assertionResults }) =>
    assertionResults.map((test) => ({ file: relative(run.root, name), name: test.fullName, status: test.status })),
  )
  const passed = tests.filter(({ status }) => status === 'passed').length
  const broken = testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && !assertionResults.some((test) => test.status === 'failed'),
  )
  const counted = tests.filter(({ status }) => status === 'failed').length + broken.length
  const failed = run.exitCode !== 0 && counted === 0 ? 1 : counted
  const selfSkipped = tests.filter(({ status }) => status !== 'passed' && status !== 'failed')
  const skippedFiles = run.leftOut.reduce((count, { files }) => count + files.length, 0)
  const skipped = selfSkipped.length + skippedFiles
  const lines = [
    ...run.leftOut.map(({ name, reason, files }) => `skipped: ${name} (${reason}): ${files.join(', ')}`),
    ...selfSkipped.map(({ file, name }) => `skipped: ${file}: ${name} (the test skipped itself)`),
    ...(failed > counted ? [`failed: vitest ended with exit code ${run.exitCode} though no test failed; see above`] : []),
    `${passed} passed, ${failed} failed, ${skipped} skipped`,
  ]
  return { passed, failed, skipped, lines }
}
