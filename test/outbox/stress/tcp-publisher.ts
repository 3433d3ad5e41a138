/**
 * The publishing half of a transport to the stress test's broker: one request per ordering key at a time, over one socket.
 */
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { publishRuns, type RunSender } from '../../../src/transport/port/publish-runs.ts'
import type { OutgoingMessage, Publisher } from '../../../src/transport/port/transport.ts'
import { eventOf } from '../../../src/testing/history/message-entries.ts'
import { voidEventType } from '../../../src/core/event/event.ts'
import type { WireAnswer, WireMessage, WireRequest } from './broker-server.ts'

class Rejected extends Error {}

export function tcpPublisher(port: number): Publisher {
  const socket = connect(port, '127.0.0.1')
  const waiting = new Map<number, (answer: WireAnswer['answer']) => void>()
  let requests = 0
  createInterface({ input: socket }).on('line', (line) => {
    const { request, answer } = JSON.parse(line) as WireAnswer
    waiting.get(request)?.(answer)
    waiting.delete(request)
  })
  const ask = (messages: readonly WireMessage[], signal: AbortSignal): Promise<WireAnswer['answer']> =>
    new Promise((resolve) => {
      const request = (requests += 1)
      waiting.set(request, resolve)
      signal.addEventListener('abort', () => resolve('unavailable'), { once: true })
      socket.write(`${JSON.stringify({ request, messages } satisfies WireRequest)}\n`)
    })
  const sender: RunSender = {
    maxRequestMessages: 20,
    maxRequestBytes: 1_000_000,
    maxConcurrentRequests: 16,
    isRejection: (error) => error instanceof Rejected,
    send: async (messages, signal) => {
      const answer = await ask(messages.map(onWire), signal)
      if (answer === 'rejected') throw new Rejected('the broker refuses this message')
      if (answer === 'unavailable') throw new Error('the broker did not confirm')
      return messages.map((message) => `m-${message.attributes['event_id']}`)
    },
  }
  return { maxBytes: 1_000_000, publish: (messages, options) => publishRuns(sender, messages, options) }
}

function onWire({ attributes }: OutgoingMessage): WireMessage {
  return { ...eventOf({ attributes }), isVoid: attributes['event_type'] === voidEventType }
}
