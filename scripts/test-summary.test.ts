import { describe, expect, test } from 'vitest'
import type { FileReport } from './run-tests.ts'
import { filesToRunAgain, type LeftOut, type Outcome, summarize } from './test-summary.ts'

const file = (name: string, tests: Record<string, string>, ...errors: string[]): FileReport => ({
  path: `/repository/${name}`,
  errors,
  tests: Object.entries(tests).map(([test, outcome]) => ({
    name: test,
    state: states.has(outcome) ? outcome : 'failed',
    errors: states.has(outcome) ? [] : [outcome],
  })),
})
const states = new Set(['passed', 'skipped'])
const run = (files: FileReport[], exitCode = 0, leftOut: LeftOut[] = [], again?: Outcome['again']) =>
  summarize({ report: { unhandled: 0, files }, exitCode, root: '/repository', leftOut, again })
const slow = 'Not true within 10000 ms: The check still returned false'

describe('the summary of a test run', () => {
  test('ends with the three counts alone on a line', () => {
    const { lines } = run([file('a.test.ts', { one: 'passed', two: 'expected 1 to be 2', three: 'skipped' })], 1)
    expect(lines.at(-1)).toBe('1 passed, 1 failed, 1 skipped')
  })

  test('names every test that skipped itself', () => {
    const { lines, skipped } = run([file('a.test.ts', { one: 'skipped', two: 'skipped' })])
    expect(skipped).toBe(2)
    expect(lines).toContain('skipped: a.test.ts: two (the test skipped itself)')
  })

  test('names a missing service with its remedy and counts each file that was left out', () => {
    const { lines, skipped } = run([], 0, [
      { name: 'redis', reason: 'redis-server is not on this machine', files: ['a.redis.test.ts', 'b.redis.test.ts'] },
    ])
    expect(skipped).toBe(2)
    expect(lines[0]).toBe('skipped: redis (redis-server is not on this machine): a.redis.test.ts, b.redis.test.ts')
  })

  test('counts a file that could not be loaded or set up as a failure', () => {
    expect(run([file('a.test.ts', {}, 'no such module')], 1).failed).toBe(1)
    const files = [file('a.test.ts', { one: 'skipped' }, 'no database'), file('b.test.ts', { two: 'expected 1 to be 2' })]
    expect(run(files, 1).failed).toBe(2)
  })

  test('never reports success when vitest itself failed', () => {
    const { failed, lines } = run([file('a.test.ts', { one: 'passed' })], 1)
    expect(failed).toBe(1)
    expect(lines.join('\n')).toContain('exit code 1 though no test failed')
  })
})

describe('a file whose wait ran out', () => {
  const others = [file('b.test.ts', { one: 'passed' })]

  test('is run again, whether a test or its set-up waited', () => {
    const files = [file('a.test.ts', { one: slow }), file('c.test.ts', {}, 'Hook timed out in 60000ms.'), ...others]
    expect(filesToRunAgain({ unhandled: 0, files })).toEqual(['/repository/a.test.ts', '/repository/c.test.ts'])
  })

  test('is not asked again when any check found something wrong, or an error was unhandled, or many waits ran out', () => {
    const files = [file('a.test.ts', { one: slow }), ...others]
    expect(filesToRunAgain({ unhandled: 1, files })).toEqual([])
    expect(filesToRunAgain({ unhandled: 0, files: [...files, file('d.test.ts', { one: 'expected 1 to be 2' })] })).toEqual([])
    const many = ['a', 'b', 'c', 'd'].map((name) => file(`${name}.test.ts`, { one: slow }))
    expect(filesToRunAgain({ unhandled: 0, files: many })).toEqual([])
  })

  test('counts as it ended the second time, and is named', () => {
    const first = [file('a.test.ts', { one: slow, two: 'passed' }), ...others]
    const again = (outcome: string, exitCode: number): Outcome['again'] => ({
      report: { unhandled: 0, files: [file('a.test.ts', { one: outcome, two: 'passed' })] },
      exitCode,
    })
    const named = 'run again: a.test.ts (a wait ran out while other files ran)'
    expect(run(first, 1, [], again('passed', 0)).lines).toEqual([named, '3 passed, 0 failed, 0 skipped'])
    expect(run(first, 1, [], again(slow, 1)).lines).toEqual([named, '2 passed, 1 failed, 0 skipped'])
  })
})
