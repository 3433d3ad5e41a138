/** A drill that cannot fail proves nothing: broken systems, and faults that did not happen, must fail it. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Drill, DrillRecord } from '../../src/drill/stage/drill.ts'
import { consumerName } from '../../src/drill/system/system.ts'
import { drills } from '../../src/drill/drills.ts'
import { openEmbedded } from '../../src/drill/target/embedded.ts'
import { runDrill } from '../../src/drill/run/run-drill.ts'
import type { Stage } from '../../src/drill/stage/stage.ts'
import type { Target } from '../../src/drill/target/target.ts'

const script = new URL('./early-ack-process.ts', import.meta.url)
let target: Target

beforeAll(async () => {
  target = await openEmbedded({ seed: 1 })
})
afterAll(() => target?.close())

/** The drill that kills a consumer, ended only when the broker has nothing left to deliver: what is missing then is lost, not late. */
async function killConsumer(
  program?: URL,
): Promise<{ readonly record: DrillRecord; readonly neverCameAgain: readonly string[] }> {
  const drill = drills.find(({ name }) => name === 'consumer-crash') as Drill
  let played: Stage | undefined
  const run: Drill['run'] = async (stage) => {
    played = stage
    await drill.run(stage)
    await stage.until(async () => (await stage.unpublished()) === 0 && (await target.unsettled(stage.topic, consumerName)) === 0)
  }
  // Only who must fail is not waited for: whoever is sound comes to rest.
  const recoverMs = program === undefined ? 180_000 : 1_000
  const options = { target, seed: 1, recoverMs, patienceMs: 180_000, script: program }
  const record = await runDrill({ ...drill, run }, options)
  const [killed, next] = played?.processes.filter(({ role }) => role === 'consumer') ?? []
  const cameAgain = new Set(next?.deliveries.map(({ event }) => event))
  const alone = new Set(killed?.deliveries.flatMap(({ event }) => (cameAgain.has(event) ? [] : [event])))
  const neverCameAgain = played?.tap.log.filter(({ event }) => alone.has(event)) ?? []
  return { record, neverCameAgain: neverCameAgain.map(({ aggregate, version }) => `${aggregate} v${version}`) }
}

test(
  'a consumer that acknowledges before it commits fails the drill that kills it, by the events it lost',
  { timeout: 600_000 },
  async () => {
    const { record, neverCameAgain } = await killConsumer(script)
    expect(record).toMatchObject({ verdict: 'fail', fired: true })
    const lost = neverCameAgain.map((event) => `one-effect: ${event} was never applied by ${consumerName}`)
    expect(record.violations.filter((text) => lost.some((each) => text.startsWith(each)))).not.toEqual([])
  },
)

test(
  'one that acknowledges afterwards has applied everything when the broker has nothing left',
  { timeout: 600_000 },
  async () => {
    const { record } = await killConsumer()
    expect(record).toMatchObject({ verdict: 'pass', fired: true, violations: [] })
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
