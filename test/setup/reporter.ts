/**
 * Vitest's reporter for scripts/run-tests.ts: writes what became of every test into the file that WAYBILL_REPORT names.
 */
import { writeFileSync } from 'node:fs'
import type { Reporter, TestModule } from 'vitest/node'
import type { Report } from '../../scripts/run-tests.ts'

export default class TestReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const path = process.env['WAYBILL_REPORT']
    if (path === undefined) return
    const report: Report = {
      files: modules.map((module) => ({
        path: module.moduleId,
        errors: module.errors().map(({ message }) => message),
        tests: [...module.children.allTests()].map((test) => ({ name: test.fullName, state: test.result().state })),
      })),
    }
    writeFileSync(path, JSON.stringify(report))
  }
}
