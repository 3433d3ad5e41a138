/**
 * `npm run proof`: the suites that take too long for every change, one after the other, each with its time and verdict.
 *
 * `--ci` runs the seeded subset (fifteen minutes at most) and fails when something it needs is missing; without it a missing
 * program is named and the rest runs. Names as arguments choose suites: `npm run proof -- drills`.
 */
import { parseArgs } from 'node:util'
import { exitCodeOf, runCommand } from './run-command.ts'
import { type ProofSuite, proofSuites } from './proof-suites.ts'

type Verdict = 'passed' | 'FAILED' | 'MISSING'

process.exitCode = await main()

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { ci: { type: 'boolean', default: false } } })
  const unknown = positionals.filter((name) => !proofSuites.some((suite) => suite.name === name))
  if (unknown.length > 0) {
    console.error(`No proof suite is called ${unknown.join(', ')}. Suites: ${proofSuites.map(({ name }) => name).join(', ')}.`)
    return 2
  }
  const chosen = proofSuites
    .filter((suite) => positionals.length === 0 || positionals.includes(suite.name))
    .filter((suite) => !values.ci || suite.inCi)
  if (chosen.length === 0) {
    console.error(`Nothing to run: --ci leaves out ${positionals.join(', ')}. Name it without --ci.`)
    return 2
  }
  const startedAt = performance.now()
  const lines: string[] = []
  const verdicts: Verdict[] = []
  for (const suite of chosen) {
    const { verdict, line, told } = await prove(suite, values.ci)
    verdicts.push(verdict)
    lines.push(line)
    if (told === undefined) continue
    console.log(['', ...lines, `ended by ${told} during ${suite.name}`].join('\n'))
    return exitCodeOf(told)
  }
  const minutes = (performance.now() - startedAt) / 60_000
  console.log(['', ...lines, `${chosen.length} suites in ${minutes.toFixed(1)} min`].join('\n'))
  return verdicts.every((verdict) => verdict === 'passed' || (verdict === 'MISSING' && !values.ci)) ? 0 : 1
}

interface Proved {
  readonly verdict: Verdict
  readonly line: string
  /** What we were told to end by meanwhile. */
  readonly told?: NodeJS.Signals | undefined
}

async function prove(suite: ProofSuite, ci: boolean): Promise<Proved> {
  const missing = suite.missing?.()
  if (missing !== undefined) return { verdict: 'MISSING', line: `MISSING ${suite.name}: ${missing}` }
  console.log(`── ${suite.name}: ${suite.summary} (${ci ? 'seeded subset' : `about ${suite.minutes} min`})`)
  const env = { ...suite.env?.(), WAYBILL_PROOF: ci ? 'ci' : 'full' }
  const { code, signal, told, durationMs } = await runCommand(suite.command, { env, passThrough: true })
  const verdict = code === 0 ? 'passed' : 'FAILED'
  const why = signal === undefined ? '' : `, ended by ${signal}`
  return { verdict, line: `${verdict.padEnd(7)} ${suite.name} ${(durationMs / 1000).toFixed(1)} s${why}`, told }
}
