/**
 * Vitest's reporter for scripts/run-tests.ts: writes what became of every test into the file that WAYBILL_REPORT names.
 */
import { writeFileSync } from 'node:fs'
import type { Reporter, SerializedError, TestModule } from 'vitest/node'
import type { Report } from '../../scripts/run-tests.ts'

export default class TestReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const path = process.env['WAYBILL_REPORT']
    if (path === undefined) return
    const report: Report = {
      unhandled: unhandled.length,
      files: modules.map((module) => ({
        path: module.moduleId,
        errors: messagesOf(module.errors()),
        tests: [...module.children.allTests()].map((test) => {
          const { state, errors } = test.result()
          return { name: test.fullName, state, errors: messagesOf(errors ?? []) }
        }),
      })),
    }
    writeFileSync(path, JSON.stringify(report))
  }
}

function messagesOf(errors: readonly { readonly message: string }[]): string[] {
  return errors.map(({ message }) => message)
}
