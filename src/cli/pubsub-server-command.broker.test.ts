import { expect, test } from 'vitest'
import { createPubsubAdmin } from '../transport/pubsub-admin.ts'
import { runCli } from './run-cli.ts'

async function serve(
  line: string,
  use: (emulatorHost: string) => Promise<void>,
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> {
  const stop = new AbortController()
  const said = { out: '', err: '' }
  let used: Promise<void> | undefined
  const code = await runCli({
    line: line.split(' '),
    env: {},
    folder: '/',
    user: 'ada',
    out: (text) => void (said.out += text),
    err: (text) => {
      said.err += text
      const host = /PUBSUB_EMULATOR_HOST=(\S+)/.exec(said.err)?.[1]
      if (host !== undefined) used ??= use(host).finally(() => stop.abort())
    },
    stopSignal: () => stop.signal,
  })
  await used
  return { code, ...said }
}

test('the server serves at the address that it prints, and stops when told', async () => {
  let topics: unknown
  const { code, out } = await serve('pubsub-server --port 0 --json', async (emulatorHost) => {
    const admin = createPubsubAdmin({ projectId: 'shop', emulatorHost })
    topics = await admin.getTopic('nothing.events')
    await admin.close()
  })
  expect(topics).toBeUndefined()
  expect({ code, data: JSON.parse(out) as unknown }).toMatchObject({
    code: 0,
    data: { emulatorHost: expect.stringMatching(/^127\.0\.0\.1:\d+$/) },
  })
})

test.each([
  ['--port 99999', '--port: expected a port'],
  ['--fsync --port 0', '--fsync needs --data-dir'],
])('%s is refused', async (options, message) => {
  expect(await serve(`pubsub-server ${options}`, async () => {})).toMatchObject({
    code: 2,
    err: expect.stringContaining(message),
  })
})
