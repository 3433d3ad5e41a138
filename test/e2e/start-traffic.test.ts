/**
 * The users of the demo: what they were not told is held against nobody.
 */
import { afterEach, expect, test, vi } from 'vitest'
import { RunHistory } from '../../examples/demo/history.ts'
import { Latencies } from '../../examples/demo/latencies.ts'
import { Ledger } from '../../examples/demo/ledger.ts'
import { Traffic } from '../../examples/demo/traffic.ts'
import { createTokens } from '../../src/core/event/token.ts'
import { writeTokenHeader } from '../../src/projection/token-header.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'

// The demo imports them by their public names, which need a build.
vi.mock('waybill', () => import('../../src/index.ts'))
vi.mock('waybill/testing', () => import('../../src/testing/index.ts'))

afterEach(() => void vi.unstubAllGlobals())

/** The users, with a catalog that begins each answer with 200 and then says this. */
async function readFrom(
  catalogSays: () => string | ReadableStream,
): Promise<{ readonly ledger: Ledger; readonly traffic: Traffic }> {
  const token = createTokens().encode({ aggregateType: 'video', aggregateId: 'a', version: 3n })
  const headers = { ...writeTokenHeader(token), 'idempotent-replayed': 'true' }
  let asked = 0
  vi.stubGlobal('fetch', async (url: string) => {
    if (!url.startsWith('http://catalog')) return new Response('{}', { headers })
    asked += 1
    return new Response(catalogSays())
  })
  const ledger = new Ledger(new Latencies())
  const places = { videoUrl: 'http://video', catalogUrl: 'http://catalog' }
  const traffic = new Traffic({ ...places, ledger, history: new RunHistory(), perSecond: 1_000 })
  traffic.start()
  await eventually(() => asked > 0)
  await traffic.stop()
  return { ledger, traffic }
}

test('a reader whose answer broke off has read nothing; one that was shown less than its token was shown something stale', async () => {
  const cutOff = await readFrom(() => new ReadableStream({ start: (body) => body.error(new Error('cut off')) }))
  expect(cutOff.traffic.counts.reads).toBe(0)
  expect(cutOff.ledger.counts.stale).toBe(0)

  const old = await readFrom(() => JSON.stringify({ version: '2' }))
  expect(old.traffic.counts.reads).toBeGreaterThan(0)
  expect(old.ledger.counts.stale).toBe(old.traffic.counts.reads)
})
