/** The drills about commands are about clients: a system that does everything and puts every client off must fail them. */
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import type { Commands } from '../../src/command/commands.ts'
import { failed } from '../../src/command/model/outcome.ts'
import { drills } from '../../src/drill/drills.ts'
import { openEmbedded } from '../../src/drill/target/embedded.ts'
import { runDrill } from '../../src/drill/run/run-drill.ts'
import type { Target } from '../../src/drill/target/target.ts'

const patienceMs = 180_000

vi.mock(import('../../src/command/commands.ts'), async (importOriginal) => {
  const real = await importOriginal()
  const createCommands: typeof real.createCommands = (options) => {
    const commands = real.createCommands(options)
    const run: Commands['run'] = async (command, request) => {
      await commands.run(command, request)
      // Long enough for whoever asks again.
      vi.advanceTimersByTime(patienceMs)
      return failed('UNAVAILABLE', 'Ask again later.')
    }
    return { ...commands, run }
  }
  return { ...real, createCommands }
})

let target: Target
beforeAll(async () => {
  target = await openEmbedded({ seed: 1 })
})
afterEach(() => void vi.useRealTimers())
afterAll(() => target?.close())

test.each(['commit-reply-cut', 'redis-loss'])(
  '%s fails if no client is ever told success',
  { timeout: 600_000 },
  async (name) => {
    const [drill] = drills.filter((each) => each.name === name)
    vi.useFakeTimers({ toFake: ['performance'] })
    const { verdict, violations } = await runDrill(drill!, { target, seed: 1, patienceMs })
    const text = 'Not true within 180000 ms: The client of request-0 was told "info" and not success.'
    expect({ verdict, violations }).toEqual({ verdict: 'fail', violations: [`The drill could not go on: ${text}`] })
  },
)
