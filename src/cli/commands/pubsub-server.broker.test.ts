import { expect, test } from 'vitest'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'
import { createPubsubAdmin } from '../../transport/pubsub/admin/admin.ts'

async function serve(line: string, use: (emulatorHost: string) => Promise<void>): Promise<Ended> {
  const stop = new AbortController()
  let said = ''
  let used: Promise<void> | undefined
  const onErr = (text: string): void => {
    said += text
    const host = /PUBSUB_EMULATOR_HOST=(\S+)/.exec(said)?.[1]
    if (host !== undefined) used ??= use(host).finally(() => stop.abort())
  }
  const ended = await runLine(line, { folder: '/', env: {}, signal: stop.signal, onErr })
  await used
  return ended
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
