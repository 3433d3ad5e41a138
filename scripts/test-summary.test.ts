import { describe, expect, test } from 'vitest'
import type { FileReport } from './run-tests.ts'
import { type LeftOut, summarize } from './test-summary.ts'

const file = (name: string, tests: Record<string, string>, ...errors: string[]): FileReport => ({
  path: `/repository/${name}`,
  errors,
  tests: Object.entries(tests).map(([test, state]) => ({ name: test, state })),
})
const run = (files: FileReport[], exitCode = 0, leftOut: LeftOut[] = []) =>
  summarize({ report: { files }, exitCode, signal: undefined, root: '/repository', leftOut })

describe('the summary of a test run', () => {
  test('ends with the three counts alone on a line', () => {
    const { lines } = run([file('a.test.ts', { one: 'passed', two: 'failed', three: 'skipped' })], 1)
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
    const files = [file('a.test.ts', { one: 'skipped' }, 'no database'), file('b.test.ts', { two: 'failed' })]
    expect(run(files, 1).failed).toBe(2)
  })

  test('never reports success when no file was run', () => {
    const { failed, lines } = run([])
    expect(failed).toBe(1)
    expect(lines).toEqual([expect.stringContaining('no test ran'), '0 passed, 1 failed, 0 skipped'])
  })

  test('never reports success when vitest itself failed', () => {
    const { failed, lines } = run([file('a.test.ts', { one: 'passed' })], 1)
    expect(failed).toBe(1)
    expect(lines.join('\n')).toContain('exit code 1 though no test failed')
  })

  test('names the signal that ended vitest', () => {
    const { failed, lines } = summarize({ report: { files: [] }, exitCode: 1, signal: 'SIGKILL', root: '/', leftOut: [] })
    expect(failed).toBe(1)
    expect(lines[0]).toBe('failed: vitest was ended by SIGKILL')
  })
})
