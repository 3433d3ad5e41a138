/** The report of a run of drills for a terminal: a line each with its evidence, and what went wrong beneath. */
import type { Drill, DrillRecord, DrillReport } from '../stage/drill.ts'

export function reportText(report: DrillReport): string {
  return [...report.drills.map(recordText), '', summaryText(report)].join('\n')
}

export function recordText({ verdict, name, seconds, evidence, violations }: DrillRecord): string {
  const head = `${verdict.padEnd(7)} ${name.padEnd(24)} ${`${seconds.toFixed(1)} s`.padStart(7)}  ${evidence}`
  return [head, ...violations.map((violation) => `        ${violation.replaceAll('\n', '\n        ')}`)].join('\n')
}

export function summaryText(report: DrillReport): string {
  const { drills, verdict, passed, failed, skipped, seed, on, seconds, leftBehind } = report
  const where = on === 'embedded' ? 'on embedded parts' : 'on your own stack'
  const sum = `${verdict}: ${drills.length} drills ${where}, ${passed} passed, ${failed} failed, ${skipped} skipped, in ${seconds.toFixed(0)} s (seed ${seed})`
  return leftBehind === undefined ? sum : `${sum}\nNot everything could be closed at the end: ${leftBehind}`
}

export function listText(drills: readonly Drill[]): string {
  return drills
    .map(({ name, hazard, fault, needs }) =>
      [`${name}${needs === 'servers' ? ' (embedded parts only)' : ''}`, `  ${hazard}`, `  ${fault}`].join('\n'),
    )
    .join('\n\n')
}
