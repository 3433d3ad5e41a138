/**
 * Plays corpora of bad input in rounds, each with a seed of its own, until time or rounds are over.
 *
 * A corpus says what must hold of every input: no crash, no 5xx, an answer in time. Between rounds the heap is measured after a garbage
 * collection: from the third round on it may not be larger than it was by then, but for a margin. What fails is told by its seed and the
 * path of its smallest input, with which it can be played again.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'

export interface OpenCorpus {
  /** Inputs in one round. */
  readonly runs: number
  readonly property: fc.IAsyncProperty<never> | fc.IAsyncProperty<unknown>
  close?(): Promise<void>
}

export interface Corpus<World> {
  readonly name: string
  readonly open: (world: World, seed: number) => OpenCorpus | Promise<OpenCorpus>
}

export interface FuzzOptions<World> {
  readonly corpora: readonly Corpus<World>[]
  readonly world: World
  readonly seed: number
  /** Asked before every round. */
  readonly isOver: (rounds: number) => boolean
  /** The smallest input of one failure, to play that alone. */
  readonly path?: string | undefined
}

export interface FuzzReport {
  readonly verdict: 'pass' | 'fail'
  readonly seed: number
  readonly rounds: number
  /** Inputs by corpus. */
  readonly inputs: Readonly<Record<string, number>>
  readonly failures: readonly FuzzFailure[]
  readonly heapMiB: { readonly first: number; readonly last: number; readonly most: number }
}

export interface FuzzFailure {
  readonly corpus: string
  readonly seed: number
  readonly path: string
  readonly error: string
}

const mebibyte = 1_048_576
/** Caches and compiled code settle in the rounds before. */
const warmRounds = 3
const heapMargin = 48 * mebibyte

export async function fuzz<World>(options: FuzzOptions<World>): Promise<FuzzReport> {
  const { corpora, world, seed, isOver, path } = options
  const inputs: Record<string, number> = Object.fromEntries(corpora.map(({ name }) => [name, 0]))
  const failures: FuzzFailure[] = []
  const heaps: number[] = []
  let rounds = 0
  while (failures.length === 0 && !isOver(rounds)) {
    const roundSeed = seed + rounds
    for (const { name, open } of corpora) {
      const corpus = await open(world, roundSeed)
      try {
        const found = await play(corpus, roundSeed, path)
        inputs[name] = (inputs[name] ?? 0) + found.runs
        if (found.failure !== undefined) failures.push({ corpus: name, seed: roundSeed, ...found.failure })
      } finally {
        await corpus.close?.()
      }
    }
    rounds += 1
    heaps.push(heapAfterCollection())
    const growth = grown(heaps)
    if (growth !== undefined) failures.push({ corpus: 'memory', seed: roundSeed, path: '', error: growth })
  }
  const inMiB = heaps.map((bytes) => Math.round(bytes / mebibyte))
  return {
    verdict: failures.length === 0 ? 'pass' : 'fail',
    seed,
    rounds,
    inputs,
    failures,
    heapMiB: { first: inMiB[0] ?? 0, last: inMiB.at(-1) ?? 0, most: Math.max(0, ...inMiB) },
  }
}

async function play(
  { property, runs }: OpenCorpus,
  seed: number,
  path: string | undefined,
): Promise<{ readonly runs: number; readonly failure?: Pick<FuzzFailure, 'path' | 'error'> }> {
  const options = { seed, numRuns: runs, timeout: 60_000, ...(path === undefined ? {} : { path }) }
  const details = await fc.check(property as fc.IAsyncProperty<unknown>, options)
  if (!details.failed) return { runs: details.numRuns }
  const { counterexamplePath, counterexample, errorInstance } = details
  const why = errorInstance instanceof Error ? (errorInstance.stack ?? errorInstance.message) : String(errorInstance)
  const input = fc.stringify(counterexample).slice(0, 2_000)
  return { runs: details.numRuns, failure: { path: counterexamplePath ?? '', error: `${why}\nInput: ${input}` } }
}

function grown(heaps: readonly number[]): string | undefined {
  const [now = 0] = heaps.slice(-1)
  const before = Math.max(...heaps.slice(0, warmRounds))
  if (heaps.length <= warmRounds || now <= before + heapMargin) return undefined
  return `The heap has ${Math.round(now / mebibyte)} MiB after ${heaps.length} rounds, and had ${Math.round(before / mebibyte)} MiB before.`
}

let collect: (() => void) | undefined

function heapAfterCollection(): number {
  if (collect === undefined) {
    setFlagsFromString('--expose-gc')
    collect = runInNewContext('gc') as () => void
  }
  collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
