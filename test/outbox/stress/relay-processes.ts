/**
 * Relay processes that come and go: started, frozen beyond their lease, killed, stopped in order and replaced.
 */
import type { RelayOptions } from '../../../src/outbox/relay/relay-options.ts'
import type { Outbox } from '../../../src/outbox/outbox.ts'
import type { Database } from '../../../src/postgres/query/database.ts'
import type { Child } from '../../../src/testing/process/child.ts'
import { eventually } from '../../../src/testing/kit/eventually.ts'
import { watchChildren } from '../../setup/watched-children.ts'

/** What a child is told: numbers and names only. */
export interface RelayChildSettings {
  readonly url: string
  readonly schema: string
  /** What the broker at `port` speaks. */
  readonly protocol: 'tcp' | 'pubsub' | 'kafka'
  readonly port: number
  readonly name: string
  readonly relay: Pick<
    RelayOptions,
    'leaseMs' | 'renewMs' | 'publishTimeoutMs' | 'backoff' | 'maxAttempts' | 'batchSize' | 'busyMs' | 'idleMs'
  >
}

export interface RelayProcesses {
  /** The ends of processes that nobody asked for. */
  readonly violations: readonly string[]
  /** Stops one as a long pause would, until another has taken all its lanes, and lets it go on. */
  freeze(place: number): Promise<void>
  /** Ends one without a word, and starts another in its place. */
  kill(place: number): Promise<void>
  /** Tells one to stop, and starts another in its place. */
  replace(place: number): Promise<void>
  /** Tells all to stop. */
  stop(): Promise<void>
}

/** Busy machines are slow; nothing here is about how fast it is. */
const patience = { timeoutMs: 120_000 }

export interface RelayProcessesOptions {
  readonly db: Database
  readonly outbox: Outbox
  readonly count: number
  readonly settings: Omit<RelayChildSettings, 'name' | 'schema'>
}

export async function startRelayProcesses({ db, outbox, count, settings }: RelayProcessesOptions): Promise<RelayProcesses> {
  const children = watchChildren()
  let started = 0
  const start = async (): Promise<{ readonly child: Child; readonly name: string }> => {
    const name = `relay-${(started += 1)}`
    const told: RelayChildSettings = { ...settings, schema: outbox.tables.schema, name }
    const child = children.start(new URL('relay-child.ts', import.meta.url), { args: [JSON.stringify(told)] })
    await child.message<{ started?: boolean }>((message) => message.started === true)
    return { child, name }
  }
  const places = await Promise.all(Array.from({ length: count }, start))
  const at = (place: number): { readonly child: Child; readonly name: string } => places[place % count] as (typeof places)[number]
  const lanesOf = async (name: string): Promise<number> => {
    const { rows } = await db.query(`select count(*)::int as lanes from ${outbox.tables.lane.quoted} where locked_by = $1`, [
      name,
    ])
    return (rows[0] as { lanes: number }).lanes
  }
  return {
    violations: children.violations,
    freeze: async (place) => {
      const { child, name } = at(place)
      await eventually(async () => {
        if ((await lanesOf(name)) === 0) throw new Error(`${name} has no lanes. Its errors: ${child.stderr.slice(-2_000)}`)
      }, patience)
      child.freeze()
      await eventually(async () => (await lanesOf(name)) === 0, patience)
      child.thaw()
    },
    kill: async (place) => {
      await children.kill(at(place).child)
      places[place % count] = await start()
    },
    replace: async (place) => {
      const stopped = children.stop(at(place).child)
      places[place % count] = await start()
      await stopped
    },
    stop: async () => void (await Promise.all(places.map(({ child }) => children.stop(child)))),
  }
}
