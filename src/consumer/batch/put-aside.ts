/**
 * Puts aside what only another version of this consumer knows: while both run, either gets what the other is to apply.
 *
 * The raw message rests in inbox_message, counted at its aggregate like anything that waits for its turn, and whoever knows it takes
 * it from there, in order with what comes of the aggregate. It is acknowledged behind that COMMIT, no attempt is charged, and no line
 * stands still. What this process does not know at all, a stream, rests for whoever knows it some time: it came here because a running
 * instance read it, or out of the table. What it knows in part, an unknown type of a stream, is asked for first: without a running
 * reader it is refused as always.
 */
import { voidEventType } from '../../core/event/event.ts'
import { execute, rows, type Tx } from '../../postgres/query/database.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import { reportPutAside } from '../failure/report.ts'
import { inOwnTransaction } from '../failure/settle.ts'
import { removeStored, storeWaiting, type Scope } from '../tables/inbox.sql.ts'
import type { UnreadItem } from '../model/batch-item.ts'
import { lockPositions, markUnknown, selectSeen } from '../tables/readers.sql.ts'
import type { Readers } from './readers.ts'
import type { Routes, Unknown } from '../model/routes.ts'
import { placesOf, removeReceived, setAside } from '../tables/stored.sql.ts'
import { takeOffsets } from '../tables/offsets.ts'

export interface UnknownDeps {
  readonly routes: Pick<Routes, 'stream'>
  /** Without it nobody else is asked. */
  readonly readers?: Readers | undefined
}

/** The items of a batch that are to be put aside. Asks, in one look for all, only if there is one of an unknown type. */
export async function findUnknown(
  { routes, readers }: UnknownDeps,
  items: readonly UnreadItem[],
): Promise<ReadonlySet<UnreadItem>> {
  const unknown = items.filter((item) => unknownOf(routes, item) !== undefined)
  if (unknown.length === 0) return new Set()
  const isAsked = unknown.some((item) => unknownOf(routes, item) === 'type')
  const others = isAsked ? await readers?.look() : undefined
  return new Set(unknown.filter((item) => unknownOf(routes, item) === 'stream' || others?.read(item.event, 'type') === true))
}

/** What of an item this process does not know. */
export function unknownOf(
  routes: UnknownDeps['routes'],
  { event, route }: Pick<UnreadItem, 'event' | 'route'>,
): Unknown | undefined {
  if (route !== undefined) return undefined
  if (routes.stream(event.aggregateType) === undefined) return 'stream'
  return event.type === voidEventType ? undefined : 'type'
}

export interface AsideDeps extends UnknownDeps {
  readonly settings: ConsumerSettings
  readonly scope: Scope
  /** First in the transaction. */
  readonly guard?: ((tx: Tx) => Promise<void>) | undefined
}

/** Lets items rest; what came from the broker may be acknowledged then. A letter that is redriven stays what it is. */
export async function putAside({ settings, scope, routes, guard }: AsideDeps, items: readonly UnreadItem[]): Promise<void> {
  const rested = await inOwnTransaction(settings, async (tx) => {
    await guard?.(tx)
    const open = (await takeOffsets(tx, scope, items)).filter(({ origin }) => origin.kind !== 'dead')
    const seen = new Set(settings.inbox ? (await rows(tx, selectSeen(scope, open))).map(({ id }) => id) : [])
    const [done, aside] = [open.filter(({ event }) => seen.has(event.id)), open.filter(({ event }) => !seen.has(event.id))]
    await forget(tx, scope, done)
    if (aside.length > 0) await rest(tx, { scope, routes }, aside)
    return aside
  })
  reportPutAside({ settings, scope }, rested)
}

async function rest(tx: Tx, { scope, routes }: Pick<AsideDeps, 'scope' | 'routes'>, items: readonly UnreadItem[]): Promise<void> {
  await execute(tx, lockPositions(scope, items))
  const delivered = items.filter(({ origin }) => origin.kind === 'delivery')
  if (delivered.length > 0) await execute(tx, storeWaiting(scope, delivered))
  const stored = placesOf(items)
  if (stored.length > 0) await execute(tx, setAside(scope, stored))
  const unknown = items.map((item) => unknownOf(routes, item) ?? 'type')
  await execute(tx, markUnknown(scope, items, unknown))
}

/** Their effects are committed: nothing of them need wait. */
async function forget(tx: Tx, scope: Scope, items: readonly UnreadItem[]): Promise<void> {
  const stored = placesOf(items)
  if (stored.length > 0) await execute(tx, removeReceived(scope, stored))
  const waiting = items.flatMap(({ origin, event }) => (origin.kind === 'waiting' ? [event.id] : []))
  if (waiting.length > 0) await execute(tx, removeStored(scope, waiting))
}
