/**
 * `npm test`: runs everything this machine can run and names what it could not.
 *
 * A test file says by its suffix what must be running. Files whose service is missing are left out, counted and named with the
 * remedy; so is every test that skipped itself. The last line is `N passed, N failed, N skipped`. Arguments are handed to vitest
 * (`npm test -- src/core`). With `--require-all` a skipped test is a failure: nothing is left out in CI without being seen.
 */
import { globSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { repositoryRoot, runCommand } from './run-command.ts'
import { services } from './services.ts'
import { type Report, summarize } from './test-summary.ts'

process.exitCode = await main(process.argv.slice(2))

async function main(args: readonly string[]): Promise<number> {
  const requireAll = args.includes('--require-all')
  const forwarded = args.filter((arg) => arg !== '--require-all')
  const left = leftOut(forwarded.filter((arg) => !arg.startsWith('-')))
  const folder = await mkdtemp(join(tmpdir(), 'waybill-test-'))
  try {
    const reportFile = join(folder, 'report.json')
    const exclusions = left.flatMap(({ glob }) => ['--exclude', glob])
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${reportFile}`]
    const { code } = await runCommand(['vitest', 'run', ...reporters, ...exclusions, ...forwarded], { passThrough: true })
    const report = await readReport(reportFile)
    const summary = summarize({ report, exitCode: code, root: repositoryRoot, leftOut: left })
    console.log(['', ...summary.lines].join('\n'))
    return summary.failed > 0 || (requireAll && summary.skipped > 0) ? 1 : 0
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** The services that are missing here and that some chosen test file needs, each with those files. */
function leftOut(filters: readonly string[]): { name: string; reason: string; glob: string; files: string[] }[] {
  const chosen = globSync('{src,test,bench,scripts}/**/*.test.ts', { cwd: repositoryRoot })
    .filter((path) => !path.startsWith('test/proof/') || process.env['WAYBILL_PROOF'] !== undefined)
    .filter((path) => filters.length === 0 || filters.some((filter) => path.includes(filter)))
  return services.flatMap(({ name, files, glob, missing }) => {
    const needing = chosen.filter((path) => files.test(path)).toSorted()
    const reason = needing.length === 0 ? undefined : missing()
    return reason === undefined ? [] : [{ name, reason, glob, files: needing }]
  })
}

/** No report means that vitest did not get far enough to write one; its exit code tells the rest. */
async function readReport(path: string): Promise<Report> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as Report
  } catch {
    return { testResults: [] }
  }
}
