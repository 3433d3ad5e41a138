/** A drill on a Pub/Sub that is not its own: it makes a topic and subscriptions there, and removes them. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openConfigured } from '../../src/drill/target/configured.ts'
import { drills } from '../../src/drill/drills.ts'
import { runDrills } from '../../src/drill/run/run-drills.ts'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const folder = await mkdtemp(join(tmpdir(), 'waybill-drill-pubsub-'))
let server: PubsubServer

beforeAll(async () => {
  server = await startPubsubServer()
  const pubsub = JSON.stringify(new URL('../../src/transport/pubsub/pubsub.ts', import.meta.url).href)
  await writeFile(
    join(folder, 'waybill.config.ts'),
    `import { pubsub } from ${pubsub}
     export default { service: 'shop', transport: () => pubsub({ projectId: 'shop', emulatorHost: '${server.emulatorHost}' }) }`,
  )
})
afterAll(async () => {
  await server?.stop()
  await rm(folder, { recursive: true, force: true })
})

test('topics and subscriptions of a drill are gone after it', { timeout: 600_000 }, async () => {
  const pubsub = { projectId: 'shop', emulatorHost: server.emulatorHost }
  const report = await runDrills(
    drills.filter(({ name }) => name === 'duplicate-storm'),
    {
      recoverMs: 180_000,
      patienceMs: 180_000,
      open: () => openConfigured({ url: database.url, file: join(folder, 'waybill.config.ts'), pubsub }),
    },
  )
  expect(report.drills[0]).toMatchObject({ verdict: 'pass', fired: true, violations: [] })
  expect(server.stats()).toMatchObject({ topics: 0, subscriptions: [] })
  expect(server.stats().published).toBeGreaterThan(200)
})
