/**
 * The one transaction of a batch: inbox and positions, projections, handlers, emitted events; then COMMIT.
 *
 * Either everything that the batch did is there, and every event of it is in the inbox, or nothing is. The number of
 * statements does not depend on the number of events, except for what handlers do themselves. It uses no second connection
 * while the transaction is open.
 */
import { WaybillError } from '../../core/errors.ts'
import { oncePer } from '../../core/options.ts'
import { execute, one, rows, type Tx } from '../../postgres/query/database.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import { transaction, transactionOptions } from '../../postgres/transaction/transaction.ts'
import { interrupt, limitStatements, runScope } from '../../postgres/transaction/tx-scope.ts'
import { insertFacts } from '../../projection/fact-table.ts'
import { upsertChanges, type VersionedChange } from '../../projection/versioned-upsert.ts'
import { archiveReceived, archiveWaiting } from '../tables/retention.sql.ts'
import { observeHandler } from './batch-tracing.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import {
  forgetAttempts,
  lockRedriving,
  markRedriven,
  selectNextHolders,
  settleApplied,
  transferHolds,
} from '../tables/dead-letter.sql.ts'
import { freshData, fromStored, limitDecodedBytes, readItems, type DataOf } from '../model/decode.ts'
import { createEmissions, type Emissions } from './emissions.ts'
import { settleForks } from '../failure/forks.ts'
import { keepingSettings, SettingsNotKept } from './handler-settings.ts'
import type { ConsumedEvent } from '../model/handler.ts'
import { createHandlerCalls, isGivenUp, type HandlerCall } from './run-handler.ts'
import {
  claim,
  claimEvents,
  claimLetters,
  claimRows,
  claimStored,
  findBlocked,
  lockBlocked,
  markConflicts,
  moveOnly,
  moveRows,
  noAggregate,
  unrecord,
  type ClaimRow,
} from '../tables/claim.sql.ts'
import { movePositions, readWaiting, removeStored, storeWaiting, type Scope } from '../tables/inbox.sql.ts'
import { hasContent } from '../tables/item-arrays.ts'
import { byVersion, ItemFailure, type Applied, type Item } from '../model/batch-item.ts'
import { aggregateKey } from '../model/received-event.ts'
import { writesRow, type Routes } from '../model/routes.ts'
import { placesOf, removeReceived, setAside } from '../tables/stored.sql.ts'
import { takeOffsets } from '../tables/offsets.ts'
import {
  decideFollowers,
  decideOrder,
  decideStored,
  latenessOf,
  positionChanges,
  readClaim,
  transferredHolds,
  type Claimed,
  type TurnOptions,
  type Turns,
} from './ordering.ts'
import { settleJumps } from './max-version-jump.ts'

export interface ApplyDeps {
  readonly settings: ConsumerSettings
  readonly routes: Routes
  readonly scope: Scope
  /** `false` while a projection is rebuilt: what handlers emit was emitted before. */
  readonly emitting: boolean
  /** Called first in every transaction; throws if the items are no longer ours. */
  readonly guard?: ((tx: Tx) => Promise<void>) | undefined
  /** Called before every handler: the transaction goes on. */
  readonly onAlive?: (() => void) | undefined
  readonly aborting: AbortSignal
}

export interface ApplyOptions {
  /** Also apply stored messages whose turn comes with this batch. */
  readonly drain: boolean
  /** Earlier attempts by event id. */
  readonly attempts: ReadonlyMap<string, number>
  /** Versions that are too far ahead were looked for: what is left is believed. @default false */
  readonly measured?: boolean | undefined
}

/** Applies items, each aggregate's in the order of versions. Throws ItemFailure if one of them is to blame. */
export async function applyBatch(deps: ApplyDeps, items: readonly Item[], options: ApplyOptions): Promise<Applied> {
  for (;;) {
    try {
      return await transaction(deps.settings.db, (tx) => applyIn(deps, { tx, items, ...options }), optionsOf(deps.settings))
    } catch (error) {
      if (!(error instanceof SettingsNotKept)) throw error
    }
  }
}

const optionsOf = oncePer(
  ({ handlerTimeoutMs, statementTimeoutMs, lockTimeoutMs, signals, clock, random }: ApplyDeps['settings']) =>
    transactionOptions({
      lockTimeoutMs,
      statementTimeoutMs,
      idleInTransactionTimeoutMs: handlerTimeoutMs + 5_000,
      signals,
      clock,
      random,
    }),
)

/** The same inside a transaction that the caller began. */
export async function applyIn(
  deps: ApplyDeps,
  { tx, items, drain, attempts, measured = false }: ApplyOptions & { readonly tx: Tx; readonly items: readonly Item[] },
): Promise<Applied> {
  const { scope, routes, settings } = deps
  await deps.guard?.(tx)
  const open = await takeLetters(tx, scope, await takeOffsets(tx, scope, items))
  // What is done already is not claimed, and the claim is what forgets attempts.
  const marked = items.length === open.length ? [] : without(items, open).filter((id) => attempts.has(id))
  if (marked.length > 0) await execute(tx, forgetAttempts(scope, marked))
  const claimed = readClaim(await claimItems(deps, tx, open))
  const jumps = measured ? [] : settleJumps(open, claimed, settings)
  await findNextHolders(deps, tx, { items: open, aggregates: claimed.aggregates })
  const options = turnOptions(deps)
  const isLate = latenessOf(open, claimed, options)
  const first = decideOrder(open, claimed, options)
  const forks = await settleForks(tx, deps, first.forks)
  // A fork without effect stays in the inbox: when it comes again it is a duplicate, and not told of again.
  const unapplied = [...first.wait, ...first.behind, ...first.skip].filter((item) => !forks.includes(item))
  // Before anything stored is looked at: a stored copy of one that waits here may be what is applied.
  if (settings.inbox && unapplied.length > 0) await execute(tx, unrecord(scope, unapplied))
  const drained = drain ? await takeStored(deps, tx, claimed) : nothingStored
  const turns = await takeFollowers(deps, tx, { turns: first, drained, claimed })
  const refused = turns.apply.find(({ refusal }) => refusal !== undefined)
  if (refused !== undefined) throw new ItemFailure(refused, new Error(refused.refusal?.error))

  // What waited goes before what came.
  const applied = drained.apply.length === 0 ? turns.apply : [...turns.apply, ...drained.apply].toSorted(byVersion)
  const consumed = consumedBy(await freshData(applied, routes))
  await writeRows(tx, routes, { items: applied, consumed })
  const emissions = await handle(deps, { tx, items: applied, consumed, isLate, attempts })
  await emissions.record(tx)
  await conclude(deps, { tx, turns, drained, claimed })
  const conflicts = await findConflicts(tx, scope, [...turns.seen, ...drained.seen])
  return {
    applied: turns.apply.length,
    effects: applied,
    duplicates: items.length - open.length + turns.seen.length + turns.skip.length,
    conflicts,
    jumps,
    waiting: turns.wait,
    forks: [...forks, ...drained.forks, ...turns.forks],
    drained: drained.apply.length,
    emitted: emissions.count,
  }
}

function without(items: readonly Item[], some: readonly Item[]): readonly string[] {
  const left = new Set(some)
  return items.flatMap((item) => (left.has(item) ? [] : item.event.id))
}

/** Repeats are compared with what was recorded. What is new costs no look. */
async function findConflicts(tx: Tx, scope: Scope, seen: readonly Item[]): Promise<readonly Item[]> {
  const repeats = seen.filter(hasContent)
  if (repeats.length === 0) return []
  const found = new Set((await rows(tx, markConflicts(scope, repeats))).map(({ id }) => id))
  return repeats.filter(({ event }) => found.has(event.id))
}

/** Locks the dead letters among the items; returns what is still to be done. */
async function takeLetters(tx: Tx, scope: Scope, items: readonly Item[]): Promise<readonly Item[]> {
  const letters = lettersOf(items)
  if (letters.length === 0) return items
  const open = new Set((await rows(tx, lockRedriving(scope, letters))).map(({ id }) => id))
  return items.filter(({ origin }) => origin.kind !== 'dead' || open.has(origin.letterId))
}

/** Where the letter that holds an aggregate is about to be settled: who holds it next. */
async function findNextHolders(
  { scope, settings }: ApplyDeps,
  tx: Tx,
  { items, aggregates }: { readonly items: readonly Item[]; readonly aggregates: Aggregates },
): Promise<void> {
  const held = items.flatMap(({ key, event }) => {
    const aggregate = aggregates.get(key)
    return aggregate?.heldBy === event.id ? aggregate : []
  })
  if (held.length === 0 || settings.onDead !== 'hold') return
  for (const row of await rows(tx, selectNextHolders(scope, held, lettersOf(items)))) {
    const aggregate = aggregates.get(aggregateKey({ aggregateType: row.aggregate_type, aggregateId: row.aggregate_id }))
    if (aggregate !== undefined) aggregate.nextHolder = { eventId: row.event_id, version: BigInt(row.version) }
  }
}

/** What a batch begins with: duplicates, and the aggregates that need a second look. */
async function claimItems(deps: ApplyDeps, tx: Tx, items: readonly Item[]): Promise<readonly ClaimRow[]> {
  if (items.length === 0) return []
  const isRows = items.every(hasRowOnly)
  if (isRows && deps.settings.positions === 'needed') return await claimUnplaced(deps, tx, items)
  return await rows(tx, claimPlaced(deps, items, isRows))
}

function claimPlaced({ scope, routes, settings }: ApplyDeps, items: readonly Item[], isRows: boolean): Statement<ClaimRow> {
  const { maxVersionJump: maxJump } = settings
  if (isRows && settings.inbox) return claimRows(scope, items, maxJump)
  // Without an inbox the position says what handlers have got: it moves with what is applied, not before.
  if (isRows && !routes.hasHandlers) return moveRows(scope, items, maxJump)
  return settings.inbox ? claim(scope, items, maxJump) : moveOnly(scope, items, { maxJump, lockedTypes: routes.handledTypes })
}

async function claimUnplaced({ scope, settings }: ApplyDeps, tx: Tx, items: readonly Item[]): Promise<readonly ClaimRow[]> {
  const seen = settings.inbox ? await rows(tx, claimEvents(scope, items)) : []
  const is = await one(tx, findBlocked(scope))
  const letters = is.failed && !settings.inbox ? await rows(tx, claimLetters(scope, items)) : []
  const blocked = is.blocked ? await rows(tx, lockBlocked(scope, items)) : []
  return [...seen.map((row) => ({ ...noAggregate, ...row })), ...letters.map((row) => ({ ...noAggregate, ...row })), ...blocked]
}

/** Without an inbox a handler's event is known by its version, which is in order because the log is. */
function turnOptions({ settings: { deltaStart, inbox }, routes }: ApplyDeps): TurnOptions {
  return { deltaStart, byVersion: inbox ? [] : routes.handledTypes }
}

/** Its one effect is a row that has its version. */
function hasRowOnly({ route, refusal }: Item): boolean {
  return refusal === undefined && route !== undefined && route.handler === undefined && writesRow(route)
}

type Aggregates = Claimed['aggregates']
type Drained = Pick<Turns, 'apply' | 'skip' | 'seen' | 'forks'>

const nothingStored: Drained = { apply: [], skip: [], seen: [], forks: [] }

/** Stored messages that are next in turn now. */
async function takeStored(deps: ApplyDeps, tx: Tx, claimed: Claimed): Promise<Drained> {
  const { scope, routes, settings } = deps
  const { aggregates } = claimed
  const open = [...aggregates.values()].filter((each) => each.waiting > 0 && each.heldBy === undefined)
  if (open.length === 0) return nothingStored
  const found = limitDecodedBytes(await rows(tx, readWaiting(scope, open, settings)), settings.batchBytes, routes)
  const stored = found.map((row) => fromStored(row, 'waiting', routes)).filter((item) => item !== undefined)
  const turns = decideStored(await readItems(stored, routes), aggregates, turnOptions(deps))
  return { ...(await claimTaken(deps, tx, { ...turns, claimed })), skip: turns.skip }
}

/** Lets those that come behind what waited follow it, if nothing of it is left; otherwise they wait with the rest. The forks are of these alone. */
async function takeFollowers(
  deps: ApplyDeps,
  tx: Tx,
  { turns, drained, claimed }: { readonly turns: Turns; readonly drained: Drained; readonly claimed: Claimed },
): Promise<Turns> {
  if (turns.behind.length === 0) return { ...turns, forks: [] }
  const gone = [...drained.apply, ...drained.skip, ...drained.seen]
  const { wait, ...behind } = decideFollowers(turns.behind, claimed.aggregates, gone)
  // One whose stored copy is applied by this batch is its duplicate.
  const taken = await claimTaken(deps, tx, { ...behind, claimed })
  return {
    ...turns,
    forks: taken.forks,
    apply: [...turns.apply, ...taken.apply].toSorted(byVersion),
    wait: [...turns.wait, ...wait],
    seen: [...turns.seen, ...taken.seen],
  }
}

/** Records events whose turn came within the batch, and tells those that are new from duplicates. */
async function claimTaken(
  deps: ApplyDeps,
  tx: Tx,
  { apply, forks, claimed }: Pick<Turns, 'apply' | 'forks'> & { readonly claimed: Claimed },
): Promise<Pick<Turns, 'apply' | 'seen' | 'forks'>> {
  const { scope, settings } = deps
  const taken = [...new Set([...apply, ...forks])]
  if (taken.length === 0) return { apply, seen: [], forks: [] }
  if (!settings.inbox) {
    for (const row of await rows(tx, claimLetters(scope, apply))) claimed.letters.add(row.letter_of)
    return { apply, seen: [], forks: [] }
  }
  const found = await rows(tx, claimStored(scope, taken))
  for (const { id, has_letter: hasLetter } of found) if (hasLetter) claimed.letters.add(id)
  const fresh = new Set(found.flatMap(({ id, is_new: isNew }) => (isNew ? id : [])))
  const isFresh = ({ event }: Item): boolean => fresh.has(event.id)
  return {
    apply: apply.filter(isFresh),
    seen: apply.filter((item) => !isFresh(item)),
    forks: await settleForks(tx, deps, forks.filter(isFresh)),
  }
}

interface Handing {
  readonly items: readonly Item[]
  readonly consumed: (item: Item) => ConsumedEvent
}

async function writeRows(tx: Tx, routes: Routes, { items, consumed }: Handing): Promise<void> {
  for (const projection of routes.projections) {
    const changes: VersionedChange[] = []
    for (const item of items) {
      if (item.route?.projections.includes(projection) !== true) continue
      changes.push({ event: consumed(item), removed: item.route.kind === 'tombstone' })
    }
    if (changes.length > 0) await upsertChanges(tx, projection, changes)
  }
  for (const factTable of routes.factTables) {
    const events = items.filter(({ route }) => route?.factTables.includes(factTable) === true).map(consumed)
    if (events.length > 0) await insertFacts(tx, factTable, events)
  }
}

async function handle(
  { settings, emitting, aborting, onAlive }: ApplyDeps,
  batch: Handing & {
    readonly tx: Tx
    readonly isLate: (item: Item) => boolean
    readonly attempts: ReadonlyMap<string, number>
  },
): Promise<Emissions> {
  const emissions = createEmissions({ settings, emitting })
  const calls = createHandlerCalls(settings, aborting)
  // The server ends them too, where no request to interrupt one gets through.
  const isShorter = settings.handlerTimeoutMs < settings.statementTimeoutMs && batch.items.some(({ route }) => route?.handler)
  if (isShorter) await execute(batch.tx, limitStatements(settings.handlerTimeoutMs))
  try {
    for (const item of batch.items) {
      const handler = item.route?.handler
      if (handler === undefined) continue
      onAlive?.()
      const event = batch.consumed(item)
      const call = (tx: Tx, calling: HandlerCall): Promise<void> | void =>
        handler(event as never, {
          tx: tx as Tx<never>,
          emit: emissions.emitFor(item, tx),
          attempt: (batch.attempts.get(event.id) ?? 0) + 1,
          late: batch.isLate(item),
          get signal() {
            return calling.signal
          },
        })
      const failure = (error: unknown): ItemFailure => new ItemFailure(item, error)
      const scope = { who: `The handler of ${item.event.type}`, blame: failure }
      const keeping = keepingSettings(batch.tx, handler, (watch) =>
        observeHandler(settings, item, () =>
          runScope(batch.tx, { ...scope, watch }, (tx) => calls.call((calling) => call(tx, calling))),
        ),
      )
      await keeping.catch(async (error: unknown) => {
        if (error instanceof SettingsNotKept) throw error
        if (isGivenUp(error)) await interrupt(settings.db, batch.tx, settings.clock)
        throw failure(error)
      })
    }
  } finally {
    calls.end()
  }
  if (isShorter) await execute(batch.tx, limitStatements(settings.statementTimeoutMs))
  return emissions
}

/** Writes what became of the items that were not simply applied. In a batch without surprises it does nothing. */
async function conclude(
  { scope, settings }: ApplyDeps,
  batch: {
    readonly tx: Tx
    readonly turns: Turns
    readonly drained: Drained
    readonly claimed: Claimed
  },
): Promise<void> {
  const { tx, turns, drained, claimed } = batch
  const { aggregates } = claimed
  const unstored = turns.wait.filter(({ origin }) => origin.kind === 'delivery' || origin.kind === 'dead')
  if (unstored.length > 0) await execute(tx, storeWaiting(scope, unstored))
  // What came from the broker is settled there; usually nothing else is left.
  const finished = [...turns.apply, ...turns.skip, ...turns.seen, ...drained.apply, ...drained.skip, ...drained.seen].filter(
    ({ origin }) => origin.kind !== 'delivery',
  )
  const aside = placesOf(turns.wait)
  if (aside.length > 0) await execute(tx, setAside(scope, aside))
  const received = placesOf(finished)
  if (received.length > 0 && settings.archive) await execute(tx, archiveReceived(scope, received))
  if (received.length > 0) await execute(tx, removeReceived(scope, received))
  const waited = finished.flatMap(({ origin, event }) => (origin.kind === 'waiting' ? [event.id] : []))
  if (waited.length > 0 && settings.archive) await execute(tx, archiveWaiting(scope, waited))
  if (waited.length > 0) await execute(tx, removeStored(scope, waited))
  const letters = lettersOf([...finished, ...unstored])
  if (letters.length > 0) await execute(tx, markRedriven(scope, letters))
  const settled = [...turns.apply, ...turns.seen, ...drained.apply, ...drained.seen].flatMap(({ event }) =>
    claimed.letters.has(event.id) ? event.id : [],
  )
  if (settled.length > 0) await execute(tx, settleApplied(scope, settled))
  const changes = positionChanges(aggregates).map((change) => (settings.inbox ? change : { ...change, taken: undefined }))
  if (changes.length > 0) await execute(tx, movePositions(scope, changes))
  const held = transferredHolds(aggregates)
  if (held.length > 0) await execute(tx, transferHolds(scope, held))
}

function lettersOf(items: readonly Item[]): readonly string[] {
  return items.flatMap(({ origin }) => (origin.kind === 'dead' ? [origin.letterId] : []))
}

/** The event as handlers and projections see it. */
function consumedBy(dataOf: DataOf): (item: Item) => ConsumedEvent {
  return (item) => {
    const { event, route, message } = item
    if (route === undefined) throw new WaybillError('INTERNAL', `Event ${event.id} has no route.`)
    return {
      id: event.id,
      type: event.type,
      kind: route.kind,
      aggregateType: event.aggregateType,
      aggregateId: event.aggregateId,
      version: event.version,
      occurredAt: new Date(event.occurredAtMs),
      attributes: message.attributes,
      data: dataOf(item),
    }
  }
}
