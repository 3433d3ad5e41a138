/** A drill that cannot fail proves nothing: broken systems, and faults that did not happen, must fail it. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Drill } from '../../src/drill/drill.ts'
import { drills } from '../../src/drill/drills.ts'
import { openEmbedded } from '../../src/drill/embedded-target.ts'
import { runDrill } from '../../src/drill/run-drill.ts'
import type { Target } from '../../src/drill/target.ts'

const script = new URL('./early-ack-process.ts', import.meta.url)
let target: Target

beforeAll(async () => {
  target = await openEmbedded({ seed: 1 })
})
afterAll(() => target?.close())

test(
  'a consumer that acknowledges before it commits fails the drill that kills it, by the events it lost',
  { timeout: 600_000 },
  async () => {
    const [drill] = drills.filter(({ name }) => name === 'consumer-crash')
    const { verdict, fired, violations } = await runDrill(drill!, {
      target,
      seed: 1,
      recoverMs: 12_000,
      patienceMs: 180_000,
      script,
    })
    expect({ verdict, fired }).toEqual({ verdict: 'fail', fired: true })
    expect(violations.some((text) => text.startsWith('one-effect'))).toBe(true)
  },
)

test('a drill whose fault was not seen fails, however sound the system is', { timeout: 600_000 }, async () => {
  const idle: Drill = {
    name: 'idle',
    hazard: 'None.',
    fault: 'None.',
    needs: 'processes',
    run: async (stage) => {
      await stage.start('relay')
      await stage.start('consumer')
      await stage.write(3)
    },
  }
  const { verdict, fired, violations } = await runDrill(idle, { target, seed: 1, recoverMs: 180_000, patienceMs: 180_000 })
  expect({ verdict, fired, violations }).toEqual({ verdict: 'fail', fired: false, violations: [] })
})

test('a drill that cannot go on fails, says why, and leaves no schema behind', { timeout: 600_000 }, async () => {
  const broken: Drill = {
    name: 'broken',
    hazard: '.',
    fault: '.',
    needs: 'processes',
    run: () => Promise.reject(new Error('no way')),
  }
  const { verdict, violations } = await runDrill(broken, { target, seed: 1 })
  expect({ verdict, violations }).toEqual({ verdict: 'fail', violations: ['The drill could not go on: no way'] })
})
