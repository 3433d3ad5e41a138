/**
 * Keeps one process of the demo running: whenever it ends, however it ends, it is started again at once.
 *
 * A process loads its code while it waits for its settings, so that all of them can be started before what they need is there.
 * They run from source by their public names, as everything in `examples` does.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { startChild, type Child } from 'waybill/testing'
import type { Settings } from './settings.ts'

export type ProcessName = 'broker' | 'video' | 'relay' | 'catalog'

/** What the processes are called on the page. */
export const processLabels: Readonly<Record<ProcessName, string>> = {
  broker: 'broker',
  video: 'owner',
  relay: 'relay',
  catalog: 'consumer',
}

/** Lets a process or thread import `waybill` by name. */
export const fromSource: string = new URL('../../scripts/from-source.ts', import.meta.url).href
const nodeOptions = `${process.env['NODE_OPTIONS'] ?? ''} --import=${fromSource}`.trim()

export interface ProcessEvents {
  /** It is up again, so long after it ended. */
  readonly onBack: (keeper: ProcessKeeper, downMs: number) => void
  /** It ended although nobody killed it. */
  readonly onFailure: (keeper: ProcessKeeper, why: string) => void
}

export class ProcessKeeper {
  readonly name: ProcessName
  /** How often it was started again. */
  restarts = 0
  isUp = false
  readonly #events: ProcessEvents
  readonly #settings = Promise.withResolvers<Settings>()
  readonly #firstUp = Promise.withResolvers<void>()
  readonly #running: Promise<void>
  #child: Child | undefined
  #isStopping = false

  constructor(name: ProcessName, events: ProcessEvents) {
    this.name = name
    this.#events = events
    this.#running = this.#keep()
    // Whoever waits for the start is told; a failed start that nobody waits for is told by `stop`.
    this.#firstUp.promise.catch(() => {})
  }

  get pid(): number | undefined {
    return this.#child?.pid
  }

  /** Hands over the settings; resolves when the process is up. */
  async start(settings: Settings): Promise<void> {
    this.#settings.resolve(settings)
    await this.#firstUp.promise
  }

  /** Ends it by SIGKILL. Resolves when it is dead; it comes back by itself. */
  async kill(): Promise<void> {
    await this.#child?.kill()
  }

  /** Asks it to end, and insists after `patienceMs`. */
  async stop(patienceMs: number): Promise<void> {
    this.#isStopping = true
    const child = this.#child
    const insist = setTimeout(() => void child?.kill(), patienceMs)
    await child?.kill('SIGTERM')
    await this.#running
    clearTimeout(insist)
  }

  async #keep(): Promise<void> {
    let downSince: number | undefined
    for (let quickDeaths = 0; !this.#isStopping;) {
      const startedAt = performance.now()
      const child = startChild(new URL(`processes/${this.name}.ts`, import.meta.url), { env: { NODE_OPTIONS: nodeOptions } })
      this.#child = child
      child.send(await Promise.race([this.#settings.promise, child.exited]))
      const isReady = await child.message<{ ready?: boolean }>((message) => message?.ready === true).then(yes, no)
      this.isUp = isReady
      if (isReady && downSince !== undefined) this.#events.onBack(this, performance.now() - downSince)
      if (isReady) this.#firstUp.resolve()
      const { code, signal } = await child.exited
      this.isUp = false
      if (signal === null && code !== 0) this.#events.onFailure(this, errorLine(child.stderr))
      downSince ??= performance.now()
      if (isReady) downSince = performance.now()
      this.restarts += 1
      quickDeaths = isReady ? 0 : quickDeaths + 1
      if (quickDeaths === 20) this.#firstUp.reject(new Error(`The ${this.name} process does not start:\n${child.stderr}`))
      // One that cannot start yet, because what it needs is cut off, tries again without using up the machine.
      if (!isReady && performance.now() - startedAt < 5_000) await delay(100)
    }
  }
}

/** What an error says of itself, out of everything that Node prints about it. */
function errorLine(stderr: string): string {
  return /^(?:\w*Error\b.*)$/m.exec(stderr)?.[0] ?? stderr.trim().split('\n').at(-1) ?? ''
}

const yes = (): boolean => true
const no = (): boolean => false
