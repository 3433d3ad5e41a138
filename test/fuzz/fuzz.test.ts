/** The fuzzer itself: what it finds, how it tells of it, and that the same is found again. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { fuzz, type Corpus } from './fuzz.ts'

const sound: Corpus<undefined> = {
  name: 'sound',
  open: () => ({ runs: 50, property: fc.asyncProperty(fc.string(), async () => {}) }),
}
/** Fails for whole numbers from 500 on. */
const planted: Corpus<undefined> = {
  name: 'planted',
  open: () => ({
    runs: 100,
    property: fc.asyncProperty(fc.nat({ max: 1_000 }), async (number) => {
      if (number >= 500) throw new Error('planted')
    }),
  }),
}
const rounds = (most: number) => (played: number) => played >= most

test('what a corpus survives is counted by corpus, round after round', async () => {
  const report = await fuzz({ corpora: [sound], world: undefined, seed: 1, isOver: rounds(3) })
  expect(report).toMatchObject({ verdict: 'pass', rounds: 3, inputs: { sound: 150 }, failures: [] })
})

test('a crash ends it, and is told with the seed and the path that play its smallest input again', async () => {
  const report = await fuzz({ corpora: [sound, planted], world: undefined, seed: 7, isOver: rounds(5) })
  expect(report).toMatchObject({ verdict: 'fail', rounds: 1 })
  const [failure] = report.failures
  expect(failure).toMatchObject({ corpus: 'planted', seed: 7, error: expect.stringContaining('planted') })
  expect(failure?.error).toContain('Input: [500]')
  const again = await fuzz({ corpora: [planted], world: undefined, seed: 7, path: failure?.path, isOver: rounds(1) })
  expect(again.failures[0]?.error).toContain('Input: [500]')
})

test('a heap that grows from round to round is a failure', async () => {
  const kept: string[][] = []
  const leaking: Corpus<undefined> = {
    name: 'leaking',
    open: () => ({
      runs: 1,
      property: fc.asyncProperty(
        fc.nat(),
        async (number) => void kept.push(Array.from({ length: 200_000 }, (_, i) => `${number}-${i}`)),
      ),
    }),
  }
  const report = await fuzz({ corpora: [leaking], world: undefined, seed: 1, isOver: rounds(30) })
  expect(report.failures).toMatchObject([
    { corpus: 'memory', error: expect.stringMatching(/The heap has \d+ MiB after \d+ rounds/) },
  ])
})
