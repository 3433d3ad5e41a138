import { describe, expect, test } from 'vitest'
import { type BenchDefinition, defineBench, exitCodeOf } from './harness.ts'

/** A bench whose samples are given: each contender returns its list's next entry, the first of which is the warm-up's. */
function scripted(scripts: Record<string, number[]>, bars: BenchDefinition<unknown>['bars'] = []) {
  const calls: string[] = []
  const rest = structuredClone(scripts)
  const contenders = Object.fromEntries(
    Object.keys(scripts).map((name) => [
      name,
      () => {
        calls.push(name)
        return rest[name]?.shift() ?? Number.NaN
      },
    ]),
  )
  let closed = 0
  const bench = defineBench({
    name: 'scripted',
    summary: 'samples from a list',
    unit: 'ms',
    contenders,
    bars,
    setup: () => ({}),
    close: () => void (closed += 1),
  })
  return { bench, calls, closed: () => closed }
}

const repeat = (sample: number, times = 8) => Array.from({ length: times }, () => sample)

describe('a bench', () => {
  test('interleaves its contenders and rotates who goes first', async () => {
    const { bench, calls } = scripted({ a: repeat(1), b: repeat(2) })
    await bench.run({ quick: true, rounds: 7 })
    expect(calls.join('')).toBe('abba'.repeat(4))
  })

  test('throws its first round away', async () => {
    const { bench } = scripted({ a: [1000, 1, 1, 1, 1, 1, 1, 1] })
    const { contenders } = await bench.run({ quick: true, rounds: 7 })
    expect(contenders[0]?.samples).toEqual(repeat(1, 7))
  })

  test('computes a ratio inside each round, so a drift that hits all alike cancels out', async () => {
    const drift = [1, 1, 2, 4, 8, 16, 32, 64]
    const { bench } = scripted({ ours: drift.map((x) => 3 * x), theirs: drift }, [
      { name: 'ours ÷ theirs', target: 4, direction: 'at-most', of: (sample) => sample('ours') / sample('theirs') },
    ])
    const { bars } = await bench.run({ quick: true, rounds: 7 })
    expect(bars).toEqual([{ name: 'ours ÷ theirs', value: 3, target: 4, direction: 'at-most', spread: 0, ok: true }])
  })

  test('calls a bar inconclusive when the rounds differ more than the margin', async () => {
    const { bench } = scripted({ a: [0, 70, 80, 90, 95, 100, 110, 120] }, [
      { name: 'a', target: 100, direction: 'at-most', of: (sample) => sample('a') },
    ])
    expect((await bench.run({ quick: true, rounds: 7 })).bars[0]).toMatchObject({ value: 95, spread: 10, ok: 'inconclusive' })
  })

  test('refuses fewer than seven rounds', async () => {
    await expect(scripted({ a: repeat(1) }).bench.run({ quick: true, rounds: 6 })).rejects.toThrow('at least 7')
  })

  test('stops at a sample that is no number, and closes what it opened', async () => {
    const { bench, closed } = scripted({ a: [1, 1, Number.NaN] })
    await expect(bench.run({ quick: true, rounds: 7 })).rejects.toThrow('a measured NaN')
    expect(closed()).toBe(1)
  })

  test('refuses a bar over a contender it does not have', async () => {
    const { bench } = scripted({ a: repeat(1) }, [{ name: 'b', target: 1, direction: 'at-most', of: (sample) => sample('b') }])
    await expect(bench.run({ quick: true, rounds: 7 })).rejects.toThrow('no contender "b"')
  })

  test('ends with exit code 4 when a bar is missed, and only then', async () => {
    const outcome = async (target: number) => {
      const bar = { name: 'a', target, direction: 'at-most', of: (sample: (contender: string) => number) => sample('a') } as const
      return exitCodeOf(await scripted({ a: [0, 70, 80, 90, 95, 100, 110, 120] }, [bar]).bench.run({ quick: true, rounds: 7 }))
    }
    expect(await outcome(50)).toBe(4)
    expect(await outcome(100)).toBe(0)
    expect(await outcome(150)).toBe(0)
  })
})
