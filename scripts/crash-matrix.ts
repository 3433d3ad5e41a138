/**
 * `npm run crash-matrix`: plays every cell of the crash matrix, or those that `--only <part of the name>` names, and tells for
 * each whether its place and fault happened and what the history checker found.
 *
 * Progress goes to standard error. With `--json` the report is printed on standard output: `{ cells, fired, violations, … }`.
 * The exit code is 0 only if every cell fired and none has a violation. `--seed` chooses the order of the cells. Where there is
 * no Kafka, the cells on it are left out and named in `notRun`.
 */
import { parseArgs } from 'node:util'
import type { CellResult } from '../test/crash-matrix/cell.ts'
import { allCells, cellsLike, playCells, type MatrixReport } from '../test/crash-matrix/matrix.ts'
import { cellName, type Cell } from '../test/crash-matrix/scene.ts'
import { missingSharedKafka, openSharedKafka } from '../test/crash-matrix/shared-kafka.ts'

process.exitCode = await main()

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false },
      only: { type: 'string' },
      seed: { type: 'string', default: '1' },
      concurrency: { type: 'string', default: '2' },
    },
  })
  const chosen = values.only === undefined ? allCells : cellsLike(values.only)
  if (chosen.length === 0) {
    console.error(`No cell has "${values.only}" in its name. A name looks like: relay: rows read × SIGKILL`)
    return 2
  }
  const reason = chosen.some(isOnKafka) ? missingSharedKafka() : undefined
  const cells = reason === undefined ? chosen : chosen.filter((cell) => !isOnKafka(cell))
  const notRun = reason === undefined ? [] : chosen.filter(isOnKafka).map(cellName)
  const { results, ...report } = await play(cells, { seed: Number(values.seed), concurrency: Number(values.concurrency) })
  if (values.json) console.log(JSON.stringify({ ...report, notRun: { cells: notRun, reason }, results }, null, 2))
  else
    console.log(
      `${report.fired}/${report.cells} cells fired, ${report.violations} violations, ${(report.tookMs / 1000).toFixed(0)} s`,
    )
  if (reason !== undefined) console.error(`not run: ${notRun.length} cells on Kafka: ${reason}`)
  return report.fired === report.cells && report.violations === 0 ? 0 : 1
}

async function play(
  cells: readonly Cell[],
  options: { readonly seed: number; readonly concurrency: number },
): Promise<MatrixReport> {
  const tell = (result: CellResult, done: number): void => {
    const { cell, fired, violations, explanation, tookMs } = result
    const verdict = violations.length > 0 ? 'VIOLATED' : fired ? 'held' : 'NOT FIRED'
    console.error(`${String(done).padStart(4)}/${cells.length} ${verdict.padEnd(9)} ${cell} (${tookMs} ms)`)
    if (violations.length > 0) console.error(explanation ?? violations.join('\n'))
  }
  const kafka = cells.some(isOnKafka) ? await openSharedKafka() : undefined
  try {
    return await playCells(cells, { ...options, ...(kafka === undefined ? {} : { kafka }), onResult: tell })
  } finally {
    await kafka?.close()
  }
}

function isOnKafka({ broker }: Cell): boolean {
  return broker === 'Kafka'
}
