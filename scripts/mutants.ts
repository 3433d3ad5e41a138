/**
 * `npm run mutants`: plays every kept mutant through the suite that is named beside it, and tells of each whether it was caught.
 *
 * The last line is `caught N/N`. A mutant counts as caught only if all of its runs noticed it (`--runs`, 2 unless told otherwise);
 * one that survives, or that no test is about any more, makes the exit code 1. `--only <part of a name or area>` chooses some;
 * `--json` prints the report on standard output instead, and the lines on standard error.
 */
import { parseArgs } from 'node:util'
import { mutantOf, mutantSuites, type MutantSuite } from './mutant-suites.ts'
import { runTests } from './run-tests.ts'

interface MutantResult {
  readonly mutant: string
  readonly area: MutantSuite['area']
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
  for (const suite of mutantSuites) {
    const chosen = suite.mutants.filter((mutant) => `${suite.area} ${mutant}`.includes(values.only))
    if (chosen.length === 0) continue
    const caught = new Map<string, number>()
    for (let run = 0; run < runs; run += 1)
      for (const mutant of await play(suite)) caught.set(mutant, (caught.get(mutant) ?? 0) + 1)
    for (const mutant of chosen) {
      const { area, suite: name, file } = suite
      const result = { mutant, area, suite: name, file, runs, caught: caught.get(mutant) ?? 0 }
      tell(
        `${result.caught === runs ? 'caught  ' : 'SURVIVED'} ${area.padEnd(8)} ${mutant}: by ${name} (${file}), ${result.caught}/${runs}`,
      )
      results.push(result)
    }
  }
  const all = results.filter((result) => result.caught === runs).length
  tell(`caught ${all}/${results.length}`)
  if (values.json) console.log(JSON.stringify({ mutants: results.length, caught: all, runs, results }, null, 2))
  return results.length > 0 && all === results.length ? 0 : 1
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
