import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { createPubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'

let folder = ''
let server: PubsubServer

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-provision-'))
  server = await startPubsubServer()
  await writeFile(
    join(folder, 'waybill.config.ts'),
    `const videos = { topic: 'video.events', ordering: 'aggregate' } as const
    export default { service: 'video', pubsub: { projectId: 'shop', provision: {
      streams: [videos], consumers: [{ name: 'catalog', streams: [videos] }], projectNumber: '1' } } }`,
  )
})

afterAll(async () => {
  await server.stop()
  await rm(folder, { recursive: true })
})

const cli = (line: string): Promise<Ended> => runLine(line, { folder, env: { PUBSUB_EMULATOR_HOST: server.emulatorHost } })

test('plan shows, apply makes, a second plan is empty, and drift is shown', async () => {
  const first = await cli('provision --plan')
  expect(first).toMatchObject({ code: 4, err: '' })
  expect(first.out.split('\n').filter((line) => line.startsWith('+'))).toHaveLength(6)
  expect(first.out.split('\n').filter((line) => line.startsWith('~'))).toHaveLength(2)
  expect(await cli('doctor pubsub')).toMatchObject({ code: 4, out: expect.stringContaining('does not exist') })

  expect(await cli('provision --apply')).toMatchObject({ code: 0, out: expect.stringContaining('Changed 8') })
  expect(await cli('provision')).toEqual({ code: 0, out: 'Nothing to change.\n', err: '' })
  expect(await cli('doctor pubsub')).toEqual({ code: 0, out: 'Nothing is wrong.\n', err: '' })
  expect(await cli('doctor pubsub --replay-days 30')).toMatchObject({ code: 4, out: expect.stringContaining('2592000 s') })

  const admin = createPubsubAdmin({ projectId: 'shop', emulatorHost: server.emulatorHost })
  const subscription = (await admin.getSubscription('video.events.catalog'))!
  await admin.updateSubscription({ ...subscription, retry: undefined }, ['retry'])
  await admin.close()
  const drift = await cli('provision --plan')
  expect(drift).toMatchObject({ code: 4, out: expect.stringContaining('retry: none -> {"minSeconds":1,"maxSeconds":60}') })
  const json = JSON.parse((await cli('provision --plan --json')).out) as { changes: readonly { action: string }[] }
  expect(json.changes).toMatchObject([{ action: 'update' }])
})

test('apply and doctor say what was left out, too', async () => {
  await writeFile(
    join(folder, 'agentless.config.ts'),
    `const orders = { topic: 'order.events', ordering: 'aggregate' } as const
    export default { service: 'order', pubsub: { projectId: 'shop', provision: {
      streams: [orders], consumers: [{ name: 'billing', streams: [orders] }] } } }`,
  )
  const note = expect.stringContaining('\nnote: projectNumber is not set')
  expect(await cli('provision --apply --config agentless.config.ts')).toMatchObject({ code: 0, out: note })
  expect(await cli('doctor pubsub --config agentless.config.ts')).toMatchObject({ code: 0, out: note })
})

test('Terraform and gcloud need no connection', async () => {
  expect(await cli('provision --terraform --emulator-host nobody:1')).toMatchObject({
    code: 0,
    out: expect.stringContaining('resource "google_pubsub_topic"'),
  })
  expect(await cli('provision --gcloud --emulator-host nobody:1')).toMatchObject({
    code: 0,
    out: expect.stringContaining('gcloud pubsub topics create'),
  })
})

test.each(['provision', 'provision --apply', 'provision --terraform', 'provision --gcloud', 'doctor pubsub'])(
  '%s gives no all-clear where nobody said what the service needs',
  async (line) => {
    await writeFile(join(folder, 'unsaid.config.ts'), `export default { service: 'video', pubsub: { projectId: 'shop' } }`)
    const refusal = { code: 2, out: '', err: expect.stringContaining('Set pubsub.provision in waybill.config.ts') }
    expect(await cli(`${line} --config unsaid.config.ts`)).toMatchObject(refusal)
    const elsewhere = await mkdtemp(join(folder, 'elsewhere-'))
    expect(await runLine(`${line} --project shop --emulator-host nobody:1`, { folder: elsewhere, env: {} })).toMatchObject(
      refusal,
    )
  },
)

test('a service that says it needs nothing lacks nothing', async () => {
  await writeFile(
    join(folder, 'nothing.config.ts'),
    `export default { service: 'video', pubsub: { projectId: 'shop', provision: { streams: [] } } }`,
  )
  expect(await cli('provision --config nothing.config.ts')).toEqual({ code: 0, out: 'Nothing to change.\n', err: '' })
  expect(await cli('doctor pubsub --config nothing.config.ts')).toEqual({ code: 0, out: 'Nothing is wrong.\n', err: '' })
})

test('two choices at once are a mistake', async () => {
  expect(await cli('provision --plan --apply')).toMatchObject({ code: 2, out: '' })
})
