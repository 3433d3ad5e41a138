/**
 * Runs contenders against each other so that the machine's mood hits all of them alike.
 *
 * Contenders are interleaved in one run: each round measures every one of them once, and the order rotates from round to round.
 * One round before is thrown away. A bar is computed inside each round, so a slow minute cancels out of a ratio; its value is the
 * median over the rounds and its spread half the interquartile range. Fewer than seven rounds are refused.
 */
import { type Direction, type Judgement, judge, median, spread } from './statistics.ts'

export interface BenchDefinition<Context> {
  readonly name: string
  readonly summary: string
  /** What a sample is: `ns/call`, `events/s`. */
  readonly unit: string
  readonly setup: (size: BenchSize) => Context | Promise<Context>
  readonly close?: (context: Context) => void | Promise<void>
  /** Each measures once and returns one sample. */
  readonly contenders: Readonly<Record<string, (context: Context) => number | Promise<number>>>
  readonly bars: readonly BarDefinition[]
}

export interface BarDefinition {
  readonly name: string
  readonly target: number
  readonly direction: Direction
  /** The bar's value in one round, from the samples of that round by contender. */
  readonly of: (sample: (contender: string) => number) => number
}

export interface BenchSize {
  /** Less work per sample, for trying a bench out; the rounds stay. */
  readonly quick: boolean
}

export interface BenchOptions extends BenchSize {
  /** @default 9 */
  readonly rounds?: number
  readonly onRound?: (round: number, samples: Readonly<Record<string, number>>) => void
}

export interface BarResult {
  readonly name: string
  readonly value: number
  readonly target: number
  readonly direction: Direction
  readonly spread: number
  readonly ok: Judgement
}

export interface BenchResult {
  readonly bench: string
  readonly unit: string
  readonly rounds: number
  readonly contenders: readonly {
    readonly name: string
    readonly median: number
    readonly spread: number
    readonly samples: readonly number[]
  }[]
  readonly bars: readonly BarResult[]
}

/** A bench whose context is nobody else's business. */
export interface Bench {
  readonly name: string
  readonly summary: string
  readonly run: (options: BenchOptions) => Promise<BenchResult>
}

export function defineBench<Context>(definition: BenchDefinition<Context>): Bench {
  return { name: definition.name, summary: definition.summary, run: async (options) => runBench(definition, options) }
}

/** Several benches as one: run one after the other, with all their contenders and bars in one result. */
export function composeBench({
  name,
  summary,
  parts,
}: {
  readonly name: string
  readonly summary: string
  readonly parts: readonly Bench[]
}): Bench {
  return {
    name,
    summary,
    run: async (options) => {
      const results: BenchResult[] = []
      for (const part of parts) results.push(await part.run(options))
      return {
        bench: name,
        unit: results.map((each) => `${each.bench}: ${each.unit}`).join('; '),
        rounds: Math.min(...results.map((each) => each.rounds)),
        contenders: results.flatMap((each) => each.contenders),
        bars: results.flatMap((each) => each.bars),
      }
    },
  }
}

/** Nanoseconds per call, over the given number of calls. */
export function nanosecondsPerCall(calls: number, call: () => unknown): number {
  const startedAt = process.hrtime.bigint()
  for (let i = 0; i < calls; i += 1) call()
  return Number(process.hrtime.bigint() - startedAt) / calls
}

/** Code 4 is for a bar that was missed; an inconclusive one asks for a quieter machine, not for a red build. */
export function exitCodeOf({ bars }: Pick<BenchResult, 'bars'>): 0 | 4 {
  return bars.some(({ ok }) => ok === false) ? 4 : 0
}

const minRounds = 7

async function runBench<Context>(definition: BenchDefinition<Context>, options: BenchOptions): Promise<BenchResult> {
  const rounds = options.rounds ?? 9
  if (rounds < minRounds) throw new Error(`${definition.name}: ${rounds} rounds prove nothing; at least ${minRounds} are needed.`)
  const context = await definition.setup({ quick: options.quick })
  try {
    const names = Object.keys(definition.contenders)
    const measured: Map<string, number>[] = []
    for (let round = 0; round <= rounds; round += 1) {
      const samples = await measureRound(definition, context, rotate(names, round))
      // Round 0 warms up caches, compilers and connections.
      if (round === 0) continue
      measured.push(samples)
      options.onRound?.(round, Object.fromEntries(samples))
    }
    return summarize(definition, names, measured)
  } finally {
    await definition.close?.(context)
  }
}

async function measureRound<Context>(
  definition: BenchDefinition<Context>,
  context: Context,
  order: readonly string[],
): Promise<Map<string, number>> {
  const samples = new Map<string, number>()
  for (const name of order) {
    const sample = await definition.contenders[name]?.(context)
    if (sample === undefined || !Number.isFinite(sample))
      throw new Error(`${definition.name}: ${name} measured ${String(sample)}.`)
    samples.set(name, sample)
  }
  return samples
}

function summarize(
  definition: Pick<BenchDefinition<unknown>, 'name' | 'unit' | 'bars'>,
  names: readonly string[],
  rounds: readonly Map<string, number>[],
): BenchResult {
  const sampleOf = (round: Map<string, number>, contender: string): number => {
    const sample = round.get(contender)
    if (sample === undefined)
      throw new Error(`${definition.name} has no contender "${contender}". Contenders: ${names.join(', ')}.`)
    return sample
  }
  const contenders = names.map((name) => {
    const samples = rounds.map((round) => sampleOf(round, name))
    return { name, median: median(samples), spread: spread(samples), samples }
  })
  const bars = definition.bars.map(({ name, target, direction, of }) => {
    const values = rounds.map((round) => of((contender) => sampleOf(round, contender)))
    const measured = { value: median(values), spread: spread(values) }
    return { name, ...measured, target, direction, ok: judge(measured, { target, direction }) }
  })
  return { bench: definition.name, unit: definition.unit, rounds: rounds.length, contenders, bars }
}

function rotate<T>(items: readonly T[], by: number): T[] {
  const start = by % items.length
  return [...items.slice(start), ...items.slice(0, start)]
}
