/**
 * Tells relays in other processes which messages their broker is to refuse: it speaks for the test, which changes its mind.
 *
 * Kafka refuses messages for their size alone. So the relay makes what is condemned too large, and Kafka does the refusing.
 */
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { createInterface } from 'node:readline'
import type { OutgoingMessage, Transport } from '../../src/transport/port/transport.ts'
import { voidEventType } from '../../src/core/event/event.ts'
import { eventOf } from '../../src/testing/history/message-entries.ts'
import type { BrokerServerOptions, WireMessage } from '../outbox/stress/broker-server.ts'

/** What a relay needs to know to begin. */
export interface JudgeGreeting {
  readonly brokers: readonly string[]
  readonly minInsyncReplicas: number
  /** Where messages go, whatever they say: a broker that many tests share has one for each. */
  readonly topic: string
}

export interface Judge {
  readonly port: number
  close(): Promise<void>
}

/** Larger than the topic of a stress takes. */
export const condemnedBytes = 40_000
export const topicMaxBytes = 20_000

export async function startJudge(greeting: JudgeGreeting, rejects: BrokerServerOptions['rejects']): Promise<Judge> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {}).on('close', () => sockets.delete(socket))
    socket.write(`${JSON.stringify(greeting)}\n`)
    createInterface({ input: socket })
      .on('error', () => {})
      .on('line', (line) => socket.write(`${JSON.stringify((JSON.parse(line) as WireMessage[]).map(rejects))}\n`))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as { port: number }).port,
    close: async () => {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

/** The transport that `open` makes, with the judge before it. */
export async function judgedTransport(port: number, open: (greeting: JudgeGreeting) => Transport): Promise<Transport> {
  const socket = connect(port, '127.0.0.1')
  const heard: ((line: string) => void)[] = []
  const { promise: greeting, resolve } = Promise.withResolvers<string>()
  heard.push(resolve)
  createInterface({ input: socket }).on('line', (line) => heard.shift()?.(line))
  const told = JSON.parse(await greeting) as JudgeGreeting
  const { topic } = told
  const transport = open(told)
  const ask = async (messages: readonly OutgoingMessage[]): Promise<readonly boolean[]> => {
    const { promise: verdict, resolve: hear } = Promise.withResolvers<string>()
    heard.push(hear)
    const facts = messages.map(({ attributes }) => ({
      ...eventOf({ attributes }),
      isVoid: attributes['event_type'] === voidEventType,
    }))
    socket.write(`${JSON.stringify(facts)}\n`)
    return JSON.parse(await verdict) as boolean[]
  }
  return {
    ...transport,
    publish: async (messages, options) => {
      const condemned = await ask(messages)
      const sent = messages.map((each, i) => ({
        ...each,
        topic,
        body: condemned[i] === true ? new Uint8Array(condemnedBytes) : each.body,
      }))
      return transport.publish(sent, options)
    },
  }
}
