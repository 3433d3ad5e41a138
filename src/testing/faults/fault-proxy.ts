/**
 * A TCP proxy that breaks connections on purpose, at the byte or message that a test names.
 *
 * Lasting faults (delay, drop, stall, refuse) are switched on and off for everybody; a rule waits for its moment on
 * some connection, fires there and counts it, so that a test can prove that the fault it is about did happen. Bytes
 * keep their order in each direction, whatever the faults.
 */
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'

import { FaultPipe } from './fault-pipe.ts'
import type { LastingFaults } from './fault-pipe.ts'
import { FaultRules } from './fault-rules.ts'
import type { FaultRule } from './fault-rules.ts'

export type Direction = 'toServer' | 'toClient'

/** Cuts a stream into messages: is given what arrived, returns what is now complete. */
export type Framer = (chunk: Buffer) => Buffer[]

export interface FaultProxyOptions {
  readonly target: { readonly host: string; readonly port: number }
  /** Makes the framer of one direction of one connection. @default every piece that arrives is a message */
  readonly frames?: (direction: Direction) => Framer
}

/** A running proxy. Faults without a direction work both ways. */
export interface FaultProxy {
  readonly host: string
  readonly port: number
  /** How many connections are open through it. */
  readonly connections: number
  /** How many connections were refused. */
  readonly refused: number
  /** How many messages arrived and were not forwarded yet, because of a delay or a stall. */
  waiting(direction: Direction): number
  /** The same address, through the proxy. */
  url(original: string): string
  /** Delivers everything later by so much. */
  delay(delayMs: number, direction?: Direction): void
  /** Swallows what is sent, for good; sockets stay open. */
  drop(direction?: Direction): void
  /** Forwards nothing and tells nobody, not even of an end: the half-open connection. `heal` delivers what was held. */
  stall(direction?: Direction): void
  /** Resets every new connection. */
  refuse(): void
  /** Ends all lasting faults; rules stay armed. */
  heal(): void
  /** Cuts all connections now. */
  cut(): void
  /** Arms a rule; its name counts its firings. */
  arm(rule: FaultRule): void
  /** Takes a rule away; its count stays. */
  disarm(name: string): void
  /** Resolves when the rule has fired, at once if it has. */
  fired(name: string): Promise<void>
  /** How often the rule has fired. */
  firings(name: string): number
  /** Cuts all connections and stops listening. */
  stop(): Promise<void>
}

/** Starts a proxy in front of the target. */
export async function startFaultProxy({ target, frames = () => (chunk) => [chunk] }: FaultProxyOptions): Promise<FaultProxy> {
  const faults: Record<Direction, LastingFaults> = { toServer: { ...healthy }, toClient: { ...healthy } }
  const rules = new FaultRules()
  const links = new Set<Link>()
  let isRefusing = false
  let refused = 0

  const listener = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    client.on('error', () => {})
    if (isRefusing) {
      refused += 1
      return void client.resetAndDestroy()
    }
    const link = new Link({ client, target, frames, faults, rules })
    links.add(link)
    link.onClose = () => links.delete(link)
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo
  const host = '127.0.0.1'

  const change = (direction: Direction | undefined, fault: Partial<LastingFaults>): void => {
    for (const each of direction === undefined ? directions : [direction]) Object.assign(faults[each], fault)
    for (const link of links) link.wake()
  }
  const cut = (): void => {
    for (const link of links) link.cut()
  }
  return {
    host,
    port,
    get connections() {
      return links.size
    },
    get refused() {
      return refused
    },
    waiting: (direction) => [...links].reduce((sum, link) => sum + link.waiting(direction), 0),
    url: (original) => withHost(original, `${host}:${port}`),
    delay: (delayMs, direction) => change(direction, { delayMs }),
    drop: (direction) => change(direction, { isDropping: true }),
    stall: (direction) => change(direction, { isStalled: true }),
    refuse: () => void (isRefusing = true),
    heal() {
      isRefusing = false
      change(undefined, healthy)
    },
    cut,
    arm: (rule) => rules.arm(rule),
    disarm: (name) => rules.disarm(name),
    fired: (name) => rules.fired(name),
    firings: (name) => rules.firings(name),
    async stop() {
      const closed = once(listener, 'close')
      listener.close()
      cut()
      await closed
    },
  }
}

function withHost(original: string, hostAndPort: string): string {
  const address = new URL(original)
  address.host = hostAndPort
  return address.href
}

const directions: readonly Direction[] = ['toServer', 'toClient']
const healthy: LastingFaults = { delayMs: 0, isDropping: false, isStalled: false }

interface LinkParts extends Required<FaultProxyOptions> {
  readonly client: Socket
  readonly faults: Record<Direction, LastingFaults>
  readonly rules: FaultRules
}

/** One connection through the proxy: two sockets and a pipe each way. */
class Link {
  onClose: () => void = () => {}
  readonly #sockets: readonly Socket[]
  readonly #pipes: Readonly<Record<Direction, FaultPipe>>

  constructor({ client, target, frames, faults, rules }: LinkParts) {
    const server = connect({ ...target, allowHalfOpen: true, noDelay: true })
    this.#sockets = [client, server]
    const pipe = (direction: Direction, from: Socket, to: Socket): FaultPipe =>
      new FaultPipe({ direction, from, to, frame: frames(direction), faults: faults[direction], rules, cut: () => this.cut() })
    const toServer = pipe('toServer', client, server)
    const toClient = pipe('toClient', server, client)
    toServer.opposite = toClient
    toClient.opposite = toServer
    this.#pipes = { toServer, toClient }
    for (const socket of this.#sockets) {
      socket.on('close', () => {
        if (this.#sockets.every((each) => each.destroyed)) this.onClose()
      })
    }
  }

  waiting(direction: Direction): number {
    return this.#pipes[direction].waiting
  }

  wake(): void {
    for (const direction of directions) this.#pipes[direction].wake()
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
    this.wake()
  }
}
