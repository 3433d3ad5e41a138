/**
 * `npm test`: runs everything this machine can run and names what it could not.
 *
 * A test file says by its suffix what must be running. Files whose service is missing are left out, counted and named with the
 * remedy; so is every test that skipped itself. The last line is `N passed, N failed, N skipped`. Arguments are handed to vitest
 * (`npm test -- src/core`). With `--require-all` a skipped test is a failure: nothing is left out in CI without being seen.
 */
import { globSync } from 'node:fs'
import { exitCodeOf, repositoryRoot } from './run-command.ts'
import { runTests } from './run-tests.ts'
import { services } from './services.ts'
import { summarize } from './test-summary.ts'

process.exitCode = await main(process.argv.slice(2))

async function main(args: readonly string[]): Promise<number> {
  const requireAll = args.includes('--require-all')
  const forwarded = args.filter((arg) => arg !== '--require-all')
  const left = leftOut(forwarded.filter((arg) => !arg.startsWith('-')))
  const exclusions = left.flatMap(({ glob }) => ['--exclude', glob])
  const run = await runTests([...exclusions, ...forwarded], { passThrough: true })
  const summary = summarize({ ...run, signal: run.signal ?? run.told, root: repositoryRoot, leftOut: left })
  console.log(['', ...summary.lines].join('\n'))
  if (run.told !== undefined) return exitCodeOf(run.told)
  return summary.failed > 0 || (requireAll && summary.skipped > 0) ? 1 : 0
}

/** The services that are missing here and that some chosen test file needs, each with those files. */
function leftOut(filters: readonly string[]): { name: string; reason: string; glob: string; files: string[] }[] {
  const chosen = globSync('{src,packages/*/{src,test},test,bench,scripts}/**/*.test.ts', { cwd: repositoryRoot })
    .filter((path) => !path.startsWith('test/proof/') || process.env['WAYBILL_PROOF'] !== undefined)
    .filter((path) => filters.length === 0 || filters.some((filter) => path.includes(filter)))
  return services.flatMap(({ name, files, glob, missing }) => {
    const needing = chosen.filter((path) => files.test(path)).toSorted()
    const reason = needing.length === 0 ? undefined : missing()
    return reason === undefined ? [] : [{ name, reason, glob, files: needing }]
  })
}
