/**
 * The matrix itself: every place of every role, crossed with every fault that can reach it. A place that is added to the registry is in it.
 *
 * Relay and consumers are played on both brokers. Of the stored consumer those places are, at which it has to do with the
 * broker: what it does with stored messages is the same on all of them.
 */
import { seededRandom } from '../../src/core/service/random.ts'
import { crashPlaces, type CrashPlace } from '../../src/testing/faults/crash-places.ts'
import { playCell, type CellResult } from './cell.ts'
import { faultNames, kafkaFaultNames, redisFaultNames, type FaultName } from './faults.ts'
import { cellName, type Cell } from './scene.ts'
import type { SharedKafka } from './shared-kafka.ts'
import { openSite } from './site.ts'

/** The places on Pub/Sub. */
export const pubsubPlaces: readonly CrashPlace[] = crashPlaces.filter(({ at }) => !('kafka' in at))
/** The places on Kafka. */
export const kafkaPlaces: readonly CrashPlace[] = crashPlaces.filter(({ role, name, at }) => {
  if (role === 'relay' || role === 'consumer') return true
  return role === 'stored consumer' && ('kafka' in at || 'delivery' in at || name === 'message stored')
})

export const allCells: readonly Cell[] = [
  ...pubsubPlaces.flatMap((place) => faultsAt(place).map((fault): Cell => ({ place, fault, broker: 'Pub/Sub' }))),
  ...kafkaPlaces.flatMap((place) => kafkaFaultNames.map((fault): Cell => ({ place, fault, broker: 'Kafka' }))),
]

/** The faults that a process can notice at this place, on Pub/Sub. */
function faultsAt({ role }: CrashPlace): readonly FaultName[] {
  return role === 'command server' ? [...faultNames, ...redisFaultNames] : faultNames
}

export interface MatrixReport {
  readonly cells: number
  readonly fired: number
  readonly violations: number
  readonly seed: number
  readonly tookMs: number
  readonly results: readonly CellResult[]
}

export interface MatrixOptions {
  /** Chooses the order of the cells. */
  readonly seed: number
  /** Cells at once, each on services of its own. @default 2 */
  readonly concurrency?: number
  /** For the cells on Kafka. */
  readonly kafka?: SharedKafka
  readonly onResult?: (result: CellResult, done: number) => void
}

/** Plays the cells and counts. */
export async function playCells(cells: readonly Cell[], options: MatrixOptions): Promise<MatrixReport> {
  const { seed, kafka, onResult } = options
  const startedAt = performance.now()
  const results: CellResult[] = []
  const tell = (result: CellResult): void => {
    results.push(result)
    onResult?.(result, results.length)
  }
  for (const broker of ['Pub/Sub', 'Kafka'] as const) {
    const left = shuffled(
      cells.filter((cell) => cell.broker === broker),
      seed,
    )
    if (broker === 'Kafka' && kafka === undefined && left.length > 0) throw new Error('There is no Kafka for the cells on it.')
    await playOn(broker === 'Kafka' ? kafka : undefined, left, { ...options, onResult: tell })
  }
  return {
    cells: cells.length,
    fired: results.filter(({ fired }) => fired).length,
    violations: results.reduce((sum, { violations }) => sum + violations.length, 0),
    seed,
    tookMs: Math.round(performance.now() - startedAt),
    results: results.toSorted((a, b) => a.cell.localeCompare(b.cell)),
  }
}

async function playOn(
  kafka: SharedKafka | undefined,
  left: Cell[],
  { concurrency = 2, onResult }: { readonly concurrency?: number; readonly onResult: (result: CellResult) => void },
): Promise<void> {
  const work = async (): Promise<void> => {
    const site = await openSite(kafka)
    try {
      for (let cell = left.pop(); cell !== undefined; cell = left.pop()) onResult(await playCell(site, cell))
    } finally {
      await site.close()
    }
  }
  await Promise.all(Array.from({ length: Math.min(concurrency, left.length) }, work))
}

/** A part of the cells on Pub/Sub that has every place and every fault in it, chosen by the seed. */
export function someCells(seed: number): readonly Cell[] {
  return pubsubPlaces.map((place, i): Cell => ({ place, fault: nth(faultsAt(place), i + seed), broker: 'Pub/Sub' }))
}

/** A part of the cells on Kafka that has every role and every fault in it, chosen by the seed. */
export function someKafkaCells(seed: number): readonly Cell[] {
  return kafkaPlaces.flatMap((place, i): readonly Cell[] =>
    (i + seed) % 3 === 0 ? [{ place, fault: nth(kafkaFaultNames, i / 3 + seed), broker: 'Kafka' }] : [],
  )
}

/** The cells whose names contain the pattern. */
export function cellsLike(pattern: string): readonly Cell[] {
  return allCells.filter((cell) => cellName(cell).includes(pattern))
}

function nth<Item>(items: readonly Item[], index: number): Item {
  return items[Math.floor(index) % items.length] as Item
}

function shuffled<Item>(items: readonly Item[], seed: number): Item[] {
  const random = seededRandom(`crash matrix ${seed}`)
  return items
    .map((item) => ({ item, at: random.next() }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ item }) => item)
}
