/**
 * `npm run crash-matrix`: plays every cell of the crash matrix, or those that `--only <part of the name>` names, and tells for
 * each whether its place and fault happened and what the history checker found.
 *
 * Progress goes to standard error. With `--json` the report is printed on standard output: `{ cells, fired, violations, … }`.
 * The exit code is 0 only if every cell fired and none has a violation. `--seed` chooses the order of the cells.
 */
import { parseArgs } from 'node:util'
import { allCells, cellsLike, playCells } from '../test/crash-matrix/matrix.ts'
import type { CellResult } from '../test/crash-matrix/cell.ts'

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
  const cells = values.only === undefined ? allCells : cellsLike(values.only)
  if (cells.length === 0) {
    console.error(`No cell has "${values.only}" in its name. A name looks like: relay: rows read × SIGKILL`)
    return 2
  }
  const tell = (result: CellResult, done: number): void => {
    const { cell, fired, violations, explanation, tookMs } = result
    const verdict = violations.length > 0 ? 'VIOLATED' : fired ? 'held' : 'NOT FIRED'
    console.error(`${String(done).padStart(4)}/${cells.length} ${verdict.padEnd(9)} ${cell} (${tookMs} ms)`)
    if (violations.length > 0) console.error(explanation ?? violations.join('\n'))
  }
  const options = { seed: Number(values.seed), concurrency: Number(values.concurrency), onResult: tell }
  const { results, ...report } = await playCells(cells, options)
  if (values.json) console.log(JSON.stringify({ ...report, results }, null, 2))
  else
    console.log(
      `${report.fired}/${report.cells} cells fired, ${report.violations} violations, ${(report.tookMs / 1000).toFixed(0)} s`,
    )
  return report.fired === report.cells && report.violations === 0 ? 0 : 1
}
