import { describe, expect, test } from 'vitest'
import { summarize } from './test-summary.ts'

const file = (name: string, status: string, tests: Record<string, string>) => ({
  name: `/repository/${name}`,
  status,
  assertionResults: Object.entries(tests).map(([fullName, outcome]) => ({ fullName, status: outcome })),
})
const run = (testResults: ReturnType<typeof file>[], exitCode = 0, leftOut: Parameters<typeof summarize>[0]['leftOut'] = []) =>
  summarize({ report: { testResults }, exitCode, root: '/repository', leftOut })

describe('the summary of a test run', () => {
  test('ends with the three counts alone on a line', () => {
    const { lines } = run([file('a.test.ts', 'failed', { one: 'passed', two: 'failed', three: 'skipped' })], 1)
    expect(lines.at(-1)).toBe('1 passed, 1 failed, 1 skipped')
  })

  test('names every test that skipped itself, also the ones that are only planned', () => {
    const { lines, skipped } = run([file('a.test.ts', 'passed', { one: 'skipped', two: 'todo', three: 'pending' })])
    expect(skipped).toBe(3)
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
    expect(run([file('a.test.ts', 'failed', {})], 1).failed).toBe(1)
    expect(run([file('a.test.ts', 'failed', { one: 'skipped' }), file('b.test.ts', 'failed', { two: 'failed' })], 1).failed).toBe(
      2,
    )
  })

  test('never reports success when vitest itself failed', () => {
    const { failed, lines } = run([file('a.test.ts', 'passed', { one: 'passed' })], 1)
    expect(failed).toBe(1)
    expect(lines.join('\n')).toContain('exit code 1 though no test failed')
  })
})
