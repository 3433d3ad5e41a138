import { expect, test } from 'vitest'
import { publishRuns } from '../port/publish-runs.ts'
import type { LazyConnection } from './client/connection.ts'
import { status } from './client/errors.ts'
import { pubsubSender } from './publish.ts'
import type { OutgoingMessage } from '../port/transport.ts'

/** A service that answers for one topic with a status, and takes everything else. */
function connectionThatFails(topic: string, code: number): LazyConnection {
  const call = async (_method: string, request: object): Promise<unknown> => {
    const { topic: asked, messages } = request as { readonly topic: string; readonly messages: readonly unknown[] }
    if (asked.endsWith(`/${topic}`)) throw Object.assign(new Error('the service says why'), { code })
    return { messageIds: messages.map((_, i) => String(i)) }
  }
  const connection: unknown = { call }
  return connection as LazyConnection
}

const message = (topic: string): OutgoingMessage => ({ topic, orderingKey: 'k', attributes: {}, body: Buffer.from('x') })

test.each([
  ['notFound', 'unroutable'],
  ['permissionDenied', 'unroutable'],
  // Its encryption key is out of reach, or it takes nothing in this region.
  ['failedPrecondition', 'unroutable'],
  ['unauthenticated', 'unavailable'],
  ['unavailable', 'unavailable'],
  ['invalidArgument', 'rejected'],
] as const)('a topic that answers %s makes its messages %s, and costs the others nothing', async (code, outcome) => {
  const sender = pubsubSender(connectionThatFails('bad.events', status[code]), {
    projectId: 'shop',
    maxBytes: 1_000_000,
    publishTimeoutMs: 1_000,
    maxConcurrentRequests: 10,
    attributes: 'plain',
    cloudEventSource: '',
  })
  const options = { signal: new AbortController().signal, maySend: () => true }
  const outcomes = await publishRuns(sender, [message('bad.events'), message('good.events')], options)
  expect(outcomes.map((each) => each.status)).toEqual([outcome, 'confirmed'])
})
