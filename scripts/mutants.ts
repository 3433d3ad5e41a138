/**
 * `npm run mutants`: plays every kept mutant and tells of each whether the tests caught it.
 *
 * Two kinds: those that a suite keeps by itself (scripts/mutant-suites.ts), and mistakes planted into a copy of the sources
 * (test/mutants). The last line is `caught N/N`. A mutant counts as caught only if all of its runs noticed it (`--runs`: of a suite,
 * 2 unless told otherwise; one of the sources is played once). One that survives, or that no test is about any more, makes the exit
 * code 1. `--only <part of a name or area>` chooses some; `--json` prints the report on standard output, and the lines on standard error.
 */
import { parseArgs } from 'node:util'
import { sourceMutants } from '../test/mutants/source-mutants.ts'
import { mutantOf, mutantSuites, type MutantSuite } from './mutant-suites.ts'
import { runTests } from './run-tests.ts'
import { withMutableTree } from './source-mutants.ts'

interface MutantResult {
  readonly mutant: string
  readonly area: MutantSuite['area'] | 'sources'
  readonly suite: string
  readonly file: string
  readonly runs: number
  readonly caught: number
}

process.exitCode = await main()

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      runs: { type: 'string', default: '2' },
      only: { type: 'string', default: '' },
      json: { type: 'boolean', default: false },
    },
  })
  const runs = Number(values.runs)
  if (!Number.isInteger(runs) || runs < 1) {
    console.error('--runs: must be a whole number of at least 1.')
    return 2
  }
  const tell = values.json ? console.error : console.log
  const results: MutantResult[] = []
  const add = (result: MutantResult): void => {
    const verdict = result.caught === result.runs ? 'caught  ' : 'SURVIVED'
    const by = `by ${result.suite} (${result.file}), ${result.caught}/${result.runs}`
    tell(`${verdict} ${result.area.padEnd(8)} ${result.mutant}: ${by}`)
    results.push(result)
  }
  await playSuites(values.only, runs, add)
  await playSources(values.only, add)
  const all = results.filter((result) => result.caught === result.runs).length
  tell(`caught ${all}/${results.length}`)
  if (values.json) console.log(JSON.stringify({ mutants: results.length, caught: all, runs, results }, null, 2))
  return results.length > 0 && all === results.length ? 0 : 1
}

async function playSuites(only: string, runs: number, add: (result: MutantResult) => void): Promise<void> {
  for (const suite of mutantSuites) {
    const chosen = suite.mutants.filter((mutant) => `${suite.area} ${mutant}`.includes(only))
    if (chosen.length === 0) continue
    const caught = new Map<string, number>()
    for (let run = 0; run < runs; run += 1)
      for (const mutant of await play(suite)) caught.set(mutant, (caught.get(mutant) ?? 0) + 1)
    const { area, suite: name, file } = suite
    for (const mutant of chosen) add({ mutant, area, suite: name, file, runs, caught: caught.get(mutant) ?? 0 })
  }
}

async function playSources(only: string, add: (result: MutantResult) => void): Promise<void> {
  const chosen = sourceMutants.filter(({ mutant }) => `sources ${mutant}`.includes(only))
  if (chosen.length === 0) return
  await withMutableTree(async (isCaught) => {
    for (const each of chosen) {
      const { test, file } = each.caughtBy
      add({ mutant: each.mutant, area: 'sources', suite: test, file, runs: 1, caught: (await isCaught(each)) ? 1 : 0 })
    }
  })
}

/** The mutants that this run of the suite caught. */
async function play(suite: MutantSuite): Promise<readonly string[]> {
  const { report, output } = await runTests([suite.file, '-t', suite.test.source], { env: { WAYBILL_PROOF: 'full' } })
  if (report.files.length === 0) console.error(`${suite.file} could not be run:\n${output.slice(-2_000)}`)
  return report.files
    .flatMap(({ tests }) => tests)
    .filter(({ state }) => state === 'passed')
    .flatMap(({ name }) => mutantOf(suite, name) ?? [])
}
