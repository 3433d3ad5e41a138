/**
 * The matrix itself: every place of every role, crossed with every fault. A place that is added to the registry is in it.
 */
import { seededRandom } from '../../src/core/random.ts'
import { crashPlaces } from '../../src/testing/crash-places.ts'
import { cellName, playCell, type Cell, type CellResult } from './cell.ts'
import { faultNames } from './faults.ts'
import { openSite } from './site.ts'

export const allCells: readonly Cell[] = crashPlaces.flatMap((place) => faultNames.map((fault) => ({ place, fault })))

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
  readonly onResult?: (result: CellResult, done: number) => void
}

/** Plays the cells and counts. */
export async function playCells(
  cells: readonly Cell[],
  { seed, concurrency = 2, onResult }: MatrixOptions,
): Promise<MatrixReport> {
  const startedAt = performance.now()
  const left = shuffled(cells, seed)
  const results: CellResult[] = []
  const work = async (): Promise<void> => {
    const site = await openSite()
    try {
      for (let cell = left.pop(); cell !== undefined; cell = left.pop()) {
        const result = await playCell(site, cell)
        results.push(result)
        onResult?.(result, results.length)
      }
    } finally {
      await site.close()
    }
  }
  await Promise.all(Array.from({ length: Math.min(concurrency, cells.length) }, work))
  return {
    cells: cells.length,
    fired: results.filter(({ fired }) => fired).length,
    violations: results.reduce((sum, { violations }) => sum + violations.length, 0),
    seed,
    tookMs: Math.round(performance.now() - startedAt),
    results: results.toSorted((a, b) => a.cell.localeCompare(b.cell)),
  }
}

/** A part of the matrix that has every place and every fault in it, chosen by the seed. */
export function someCells(seed: number): readonly Cell[] {
  const shift = seed % faultNames.length
  return crashPlaces.map((place, i) => ({ place, fault: faultNames[(i + shift) % faultNames.length] ?? 'SIGKILL' }))
}

/** The cells whose names contain the pattern. */
export function cellsLike(pattern: string): readonly Cell[] {
  return allCells.filter((cell) => cellName(cell).includes(pattern))
}

function shuffled<Item>(items: readonly Item[], seed: number): Item[] {
  const random = seededRandom(`crash matrix ${seed}`)
  return items
    .map((item) => ({ item, at: random.next() }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ item }) => item)
}
