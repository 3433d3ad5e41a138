/** What a cell is, and what stands ready when it begins: a database, its broker, a crew, and a process to be crashed. */
import type { Database } from '../../src/postgres/query/database.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import type { Child } from '../../src/testing/process/child.ts'
import { crashPointName, type CrashPlace } from '../../src/testing/faults/crash-places.ts'
import { startFaultProxy, type FaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import { createHistory } from '../../src/testing/history/history.ts'
import type { BrokerName } from './broker.ts'
import { createCrew } from './crew.ts'
import type { FaultName } from './faults.ts'
import { unsettledLetters, type JudgedWorld } from './judge.ts'
import type { Deposit } from './ledger.ts'
import { emptyTables, openPool, type Site } from './site.ts'
import { transportTo } from './transport-to.ts'

export interface Cell {
  readonly place: CrashPlace
  readonly fault: FaultName
  readonly broker: BrokerName
}

export function cellName({ place, fault, broker }: Cell): string {
  return `${crashPointName(place)} × ${fault}${broker === 'Kafka' ? ' (Kafka)' : ''}`
}

/** Where a consumer comes to only with a change that it gives up, or that an operator redrives. */
const placesOfPoison: ReadonlySet<string> = new Set([
  'attempt charged',
  'last attempt charged',
  'letter written',
  'aggregate held',
  'burial commit sent',
  'buried',
  'letter redriven',
])

export function isPoisoned({ place }: Cell): boolean {
  return placesOfPoison.has(place.name)
}

export interface Scene extends JudgedWorld {
  readonly site: Site
  readonly cell: Cell
  readonly url: string
  readonly proxy: FaultProxy
  readonly child: Child
  /** How often the cell was played before, in vain. */
  readonly misses: number
}

/** Whatever was opened by then can be closed, also where something fails on the way. */
export async function setScene(
  site: Site,
  { cell, misses }: Pick<Scene, 'cell' | 'misses'>,
  closers: (() => unknown)[],
): Promise<Scene> {
  const { url } = site
  await emptyTables(url)
  const pool = openPool(url)
  closers.push(() => pool.end())
  const { host, port } = site.postgres
  if (cell.fault === 'redis stop') closers.push(() => site.restartRedis())
  const [broker, proxy] = await Promise.all([site.openBroker(), startFaultProxy({ target: { host, port } })])
  closers.push(
    () => broker.close(),
    () => proxy.stop(),
  )
  const transport = transportTo(broker.address)
  closers.push(() => transport.close())
  const history = createHistory({ source: 'client' })
  const db = fromPg(pool)
  const mode = cell.place.role === 'stored consumer' ? 'stored' : 'direct'
  const crew = createCrew({ db, cache: site.cache, transport, history, mode, isPoisoned: isPoisoned(cell) })
  closers.push(() => crew.stop())
  const child = site.takeChild()
  closers.push(() => child.kill())
  return { site, cell, url, broker, proxy, history, db, crew, child, misses }
}

const accounts = ['a', 'b']
/** The cache is older than the cell: its requests have names that no other cell has. */
export const requests = (kind: string, { broker }: Pick<Scene, 'broker'>): Deposit[] =>
  accounts.map((account, i) => ({ request: `${kind} ${account} ${broker.id}`, account, amount: 10 + i }))

/** What is not published, not received or not processed, or was given up. */
export async function leftOver(scene: Pick<Scene, 'db' | 'broker'>): Promise<number> {
  return (await count(scene.db, 'waybill.inbox_message')) + (await unsettledLetters(scene.db)) + (await underWay(scene))
}

/** What is not published or not acknowledged. */
export async function underWay({ db, broker }: Pick<Scene, 'db' | 'broker'>): Promise<number> {
  return (await count(db, 'waybill.outbox_dispatch')) + (await broker.unacked())
}

async function count(db: Database, table: string): Promise<number> {
  const { rows } = await db.query(`select count(*)::int as n from ${table}`)
  return (rows[0] as { n: number }).n
}
