/**
 * A broker for relays in other processes: it records what lands, in its order, and has bad days.
 *
 * A line of JSON is a request of one ordering key; a line is the answer. Chance is seeded. Requests that land late do so
 * after a number of others, not after a time. `calm` ends the bad days and lets everything land that is still on its way.
 */
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { createInterface } from 'node:readline'
import { randomInt, type Random } from '../../../src/core/service/random.ts'
import type { Log } from '../../../src/testing/history/entry.ts'

/** A message on the wire. */
export interface WireMessage extends Pick<Log, 'event' | 'aggregate' | 'version'> {
  readonly isVoid: boolean
}

export interface WireRequest {
  readonly request: number
  readonly messages: readonly WireMessage[]
}

export interface WireAnswer {
  readonly request: number
  readonly answer: 'confirmed' | 'rejected' | 'unavailable'
}

/** What can go wrong with a request, as chances. */
export const badDays = { refuse: 0.04, lie: 0.04, landPart: 0.04, landLate: 0.04, duplicate: 0.04, hang: 0.005 }
type Fault = keyof typeof badDays

export interface BrokerServer {
  readonly protocol: 'tcp'
  readonly port: number
  /** Everything that landed, duplicates included. */
  readonly landed: readonly Log[]
  /** How many different events landed. */
  arrived(): number
  /** How often each fault has struck. */
  readonly struck: Readonly<Record<Fault, number>>
  calm(): void
  close(): Promise<void>
}

export interface BrokerServerOptions {
  readonly random: Random
  /** Messages that are refused for what they are. */
  readonly rejects: (message: WireMessage) => boolean
}

export async function startBrokerServer({ random, rejects }: BrokerServerOptions): Promise<BrokerServer> {
  const landed: Log[] = []
  const different = new Set<string>()
  const struck = { refuse: 0, lie: 0, landPart: 0, landLate: 0, duplicate: 0, hang: 0 }
  const sockets = new Set<Socket>()
  let late: { after: number; readonly messages: readonly WireMessage[] }[] = []
  let isCalm = false

  const strikes = (fault: Fault): boolean => {
    if (isCalm || random.next() >= badDays[fault]) return false
    struck[fault] += 1
    return true
  }
  const land = (messages: readonly WireMessage[]): void => {
    for (const { aggregate, version, event } of messages) {
      landed.push({ op: 'log', source: 'broker', aggregate, version, event })
      different.add(event)
    }
  }
  const landLate = (): void => {
    for (const each of late) each.after -= 1
    for (const { messages } of late.filter(({ after }) => after <= 0)) land(messages)
    late = late.filter(({ after }) => after > 0)
  }
  const answerTo = (messages: readonly WireMessage[]): WireAnswer['answer'] | undefined => {
    if (messages.some(rejects)) return 'rejected'
    if (strikes('refuse')) return 'unavailable'
    if (strikes('landLate')) {
      late.push({ after: randomInt(random, 1, 40), messages })
      return 'unavailable'
    }
    land(strikes('landPart') ? messages.slice(0, randomInt(random, 1, messages.length)) : messages)
    if (landed.at(-1)?.event !== messages.at(-1)?.event || strikes('lie')) return 'unavailable'
    if (strikes('duplicate')) land(messages)
    return strikes('hang') ? undefined : 'confirmed'
  }
  const server = createServer((socket) => {
    sockets.add(socket)
    // A relay that is killed breaks its connection; that is its business.
    socket.on('error', () => {}).on('close', () => sockets.delete(socket))
    const lines = createInterface({ input: socket }).on('error', () => {})
    lines.on('line', (line) => {
      const { request, messages } = JSON.parse(line) as WireRequest
      landLate()
      const answer = answerTo(messages)
      if (answer !== undefined) socket.write(`${JSON.stringify({ request, answer } satisfies WireAnswer)}\n`)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    protocol: 'tcp',
    port: (server.address() as { port: number }).port,
    landed,
    struck,
    arrived: () => different.size,
    calm: () => {
      isCalm = true
      for (const { messages } of late) land(messages)
      late = []
    },
    close: async () => {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}
