/**
 * `npm run bench -- <name> [--json] [--quick] [--rounds N]`: runs bench/<name>.bench.ts; without a name, lists the benches.
 *
 * With `--json` one JSON object is printed on standard output and everything else on standard error. Exit codes: 0 no bar was
 * missed (an inconclusive bar is not a missed one), 1 the bench itself failed, 2 wrong usage, 4 a bar was missed.
 */
import { readdirSync } from 'node:fs'
import { arch, availableParallelism, cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { type Bench, type BenchResult, exitCodeOf } from './harness.ts'

process.exitCode = await main()

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      json: { type: 'boolean', default: false },
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
    },
  })
  const names = benchNames()
  const [name] = positionals
  if (name === undefined) return list(names)
  if (!names.includes(name)) {
    console.error(`There is no bench "${name}". Benches: ${names.join(', ')}.`)
    return 2
  }
  const bench = await load(name)
  console.error(`${bench.name}: ${bench.summary}`)
  const result = await bench.run({
    quick: values.quick,
    ...(values.rounds === undefined ? {} : { rounds: Number(values.rounds) }),
    onRound: (round, samples) => console.error(`  round ${round}: ${Object.entries(samples).map(show).join(', ')}`),
  })
  if (values.json) console.log(JSON.stringify({ ...result, quick: values.quick, machine: machine() }))
  else printResult(result)
  return exitCodeOf(result)
}

function benchNames(): string[] {
  const files = readdirSync(new URL('.', import.meta.url)).filter((file) => file.endsWith('.bench.ts'))
  return files.map((file) => file.slice(0, -'.bench.ts'.length)).toSorted()
}

async function load(name: string): Promise<Bench> {
  const module = (await import(`./${name}.bench.ts`)) as { readonly bench: Bench }
  return module.bench
}

async function list(names: readonly string[]): Promise<number> {
  for (const name of names) console.log(`${name.padEnd(20)} ${(await load(name)).summary}`)
  return 0
}

function printResult({ unit, rounds, contenders, bars }: BenchResult): void {
  const width = Math.max(...[...contenders, ...bars].map(({ name }) => name.length))
  console.log(`\nmedian of ${rounds} rounds ± half the interquartile range, ${unit}`)
  for (const { name, median, spread } of contenders) console.log(`  ${name.padEnd(width)}  ${figure(median)} ± ${figure(spread)}`)
  console.log('\nbars')
  for (const { name, value, spread, direction, target, ok } of bars) {
    const verdict = ok === 'inconclusive' ? ok : ok ? 'ok' : 'MISSED'
    console.log(
      `  ${name.padEnd(width)}  ${figure(value)} ± ${figure(spread)}  ${direction.replace('-', ' ')} ${figure(target)}  ${verdict}`,
    )
  }
}

function show([name, sample]: [string, number]): string {
  return `${name} ${figure(sample)}`
}

function figure(value: number): string {
  return value.toLocaleString('en', { maximumSignificantDigits: 4 })
}

function machine(): Readonly<Record<string, string | number>> {
  return { node: process.version, cpu: cpus()[0]?.model ?? 'unknown', cores: availableParallelism(), arch: arch() }
}
