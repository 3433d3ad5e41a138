/**
 * One attempt: one transaction, with a fixed order of locks: marker → aggregates → what `execute` touches → events.
 *
 * The marker's insert is the first statement. If it finds the request there, nothing else is done. Otherwise all that follows
 * commits with it or not at all. So a rejection that is kept has an attempt of its own, which does nothing else: what was rejected
 * is rolled back first, with whatever it still has under way.
 */
import { jsonText } from '../../core/encoding/canonical.ts'
import { WaybillError } from '../../core/errors.ts'
import { rows, type Tx } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import type { Admitted } from './admit.ts'
import { aggregateKey, lockAggregates, type Aggregate, type LockedAggregate } from '../model/aggregate.ts'
import { withCommandId } from '../model/request-ids.ts'
import { selectVersions, type MarkerKey, type MarkerRow } from '../model/command.sql.ts'
import type { AttemptState } from './execute.ts'
import { responseContext } from './committed.ts'
import { openCommand } from './open-command.ts'
import type { Pipeline } from './run.ts'
import { allNodes, validResponse, type PlanFailure, type PlanNode } from './plan.ts'
import { keptText, rejectionOf, versionConflict, type Rejection } from '../model/rejection.ts'

/** How far an attempt came; what its failure means depends on that. */
export interface Attempt {
  readonly number: number
  /** When it asked for its marker and its locks. */
  claimedAtMs?: number
  /** It has them. */
  isClaimed?: boolean
  tx?: Tx
  aggregate?: Aggregate | undefined
  /** Set when only COMMIT is left. */
  result?: AttemptResult
}

export type AttemptResult =
  | { readonly kind: 'known'; readonly marker: MarkerRow }
  | { readonly kind: 'rejected'; readonly rejection: Rejection }
  | { readonly kind: 'executed'; readonly response: string; readonly token: string | undefined }

/**
 * Rolls back an attempt that has nothing to execute. The error of the plan would not do: where that looks like a lost connection,
 * the good one that the attempt has would be thrown away. So it is no `cause` either.
 */
export class NothingPlanned extends Error {
  readonly failure: PlanFailure

  constructor(failure: PlanFailure) {
    super('The plan failed: there is nothing to execute.')
    this.failure = failure
  }
}

interface Work {
  readonly asked: Admitted
  readonly node: PlanNode
  readonly attempt: Attempt
}

export async function runAttempt(pipeline: Pipeline, work: Work): Promise<AttemptResult> {
  const { db, transactions } = pipeline
  const { asked, attempt } = work
  attempt.aggregate = work.node.aggregate
  const open = openCommand(db, asked.definition.name)
  try {
    return await transaction(
      db,
      async (tx) => {
        attempt.tx = tx
        attempt.result = await open.inside(() => perform(pipeline, work, tx))
        return attempt.result
      },
      asked.requestId === undefined ? transactions.unclaimed : transactions.claiming,
    )
  } finally {
    open.ended()
  }
}

async function perform(pipeline: Pipeline, work: Work, tx: Tx): Promise<AttemptResult> {
  const { markers, limits, clock } = pipeline
  const { asked, node, attempt } = work
  const key = asked.requestId === undefined ? undefined : { principal: asked.principal, requestId: asked.requestId }
  const { locked, compared } = aggregatesOf(node)
  attempt.claimedAtMs = clock.monotonicMs()
  let taken: readonly LockedAggregate[] | undefined
  if (key === undefined) taken = await lockAggregates(tx, locked, { schema: pipeline.schema })
  else {
    const { definition, fingerprint } = asked
    const marker = { ...key, command: definition.name, fingerprint, lockTimeoutMs: limits.lockTimeoutMs }
    taken = await markers.claim(tx, marker, locked)
    if (taken === undefined) return await knownRequest(pipeline, tx, key)
  }
  const aggregates = new Map(compared.map((each) => [aggregateKey(each), { ...each, version: 0n }]))
  const read = compared.length === 0 ? [] : await rows(tx, selectVersions(pipeline.tables, compared))
  for (const { type, id, version } of read) aggregates.set(aggregateKey({ type, id }), { type, id, version: BigInt(version) })
  for (const each of taken) aggregates.set(aggregateKey(each), each)
  assertExpected(asked, node, aggregates)
  attempt.isClaimed = true
  if (node.failure === undefined) return await executeAndAnswer(pipeline, work, { tx, key, aggregates })
  const rejection = keptRejection(asked, node.failure.error)
  if (rejection === undefined || key === undefined) throw new NothingPlanned(node.failure)
  const { text, dropped } = keptText(rejection, limits.maxResponseBytes)
  if (dropped !== undefined) reportDropped(pipeline, node, dropped)
  const response = await pipeline.responses.encode(text, responseContext(asked))
  await markers.keep(tx, key, { rejected: true, response, token: null })
  return { kind: 'rejected', rejection }
}

/** The rejection that an error is, if repeats are to be told of it. */
export function keptRejection({ definition, requestId }: Admitted, error: unknown): Rejection | undefined {
  return requestId !== undefined && definition.storeRejections ? rejectionOf(error) : undefined
}

async function knownRequest({ markers }: Pipeline, tx: Tx, key: MarkerKey): Promise<AttemptResult> {
  const marker = await markers.find(tx, key)
  if (marker !== undefined) return { kind: 'known', marker }
  // Clean-up took it between the two statements: its time is over, so the request is a new one.
  throw versionConflict(`The marker of request ${key.requestId}`)
}

interface Taken {
  readonly tx: Tx
  readonly key: MarkerKey | undefined
  readonly aggregates: ReadonlyMap<string, LockedAggregate>
}

async function executeAndAnswer(pipeline: Pipeline, { asked, node, attempt }: Work, taken: Taken): Promise<AttemptResult> {
  const { tx, key, aggregates } = taken
  const state: AttemptState = { attempt: attempt.number, aggregates, emitted: [], handOut: node.decided.handOut() }
  const value = await validResponse(node.definition, await pipeline.execute(tx, node, state))
  const events = key === undefined ? state.emitted : withCommandId(state.emitted, key)
  const added = events.length === 0 ? [] : await pipeline.outbox.addMany(tx, events)
  assertUnchanged(node, state, added)
  const token = tokenOf(pipeline, node, state, added)
  const response = encodeResponse(node, value)
  if (key !== undefined && node.definition.store === 'response') await keepResponse(pipeline, asked, { tx, key, response, token })
  return { kind: 'executed', response, token }
}

/** All aggregates of the tree: those whose rows are locked, and those whose versions are compared in the end. */
function aggregatesOf(root: PlanNode): { readonly locked: readonly Aggregate[]; readonly compared: readonly Aggregate[] } {
  const [locked, all] = [new Map<string, Aggregate>(), new Map<string, Aggregate>()]
  for (const { aggregate, definition } of allNodes(root)) {
    if (aggregate === undefined) continue
    all.set(aggregateKey(aggregate), aggregate)
    if (definition.locking === 'row') locked.set(aggregateKey(aggregate), aggregate)
  }
  return {
    locked: [...locked.values()],
    compared: [...all].filter(([key]) => !locked.has(key)).map(([, aggregate]) => aggregate),
  }
}

/** The version that the client saw must be the current one in every attempt; if it is not, there is no other. */
function assertExpected(asked: Admitted, node: PlanNode, aggregates: ReadonlyMap<string, LockedAggregate>): void {
  if (asked.expectedVersion === undefined || node.aggregate === undefined) return
  const current = aggregates.get(aggregateKey(node.aggregate))?.version ?? 0n
  if (current === asked.expectedVersion) return
  throw new WaybillError(
    'PRECONDITION_FAILED',
    `${node.aggregate.type} ${node.aggregate.id} has version ${current}, not ${asked.expectedVersion}. Read it again, then decide.`,
  )
}

type AddedEvents = readonly { readonly version: bigint; readonly token: string }[]

/** Compare-and-set: the first event of an aggregate that is not locked must take the version after the one that was read. */
function assertUnchanged(root: PlanNode, state: AttemptState, added: AddedEvents): void {
  for (const aggregate of aggregatesOf(root).compared) {
    const key = aggregateKey(aggregate)
    const own = state.emitted.findIndex((event) => keyOfEvent(event) === key)
    if (own === -1) {
      throw new WaybillError(
        'INVALID_OPTION',
        `${root.definition.name} compares versions (locking: 'version') and emitted no event of ${aggregate.type}, so nobody would notice its change. Emit one, or use locking: 'row'.`,
      )
    }
    if (added[own]?.version !== (state.aggregates.get(key)?.version ?? 0n) + 1n)
      throw versionConflict(`${aggregate.type} ${aggregate.id}`)
  }
}

function tokenOf({ tokens }: Pipeline, node: PlanNode, state: AttemptState, added: AddedEvents): string | undefined {
  if (node.aggregate === undefined) return added.at(-1)?.token
  const key = aggregateKey(node.aggregate)
  const last = state.emitted.findLastIndex((event) => keyOfEvent(event) === key)
  if (last !== -1) return added[last]?.token
  const version = state.aggregates.get(key)?.version ?? 0n
  return version === 0n
    ? undefined
    : tokens.encode({ aggregateType: node.aggregate.type, aggregateId: node.aggregate.id, version })
}

function keyOfEvent({ type, aggregateId }: AttemptState['emitted'][number]): string {
  return aggregateKey({ type: type.stream.aggregateType, id: aggregateId })
}

/** Empty text stands for `undefined`. What JSON cannot hold fails here, where it can still be undone. */
function encodeResponse(node: PlanNode, value: unknown): string {
  return jsonText(value, { what: `${node.definition.name}: the response` }) ?? ''
}

async function keepResponse(
  pipeline: Pipeline,
  asked: Admitted,
  kept: { readonly tx: Tx; readonly key: MarkerKey; readonly response: string; readonly token: string | undefined },
): Promise<void> {
  const bytes = Buffer.byteLength(kept.response)
  if (bytes > pipeline.limits.maxResponseBytes) return reportDropped(pipeline, asked, bytes)
  const response = await pipeline.responses.encode(kept.response, responseContext(asked))
  await pipeline.markers.keep(kept.tx, kept.key, { rejected: false, response, token: kept.token ?? null })
}

function reportDropped({ limits, signals }: Pipeline, { definition }: Pick<PlanNode, 'definition'>, bytes: number): void {
  signals.emit('command.response-dropped', { command: definition.name, bytes, maxBytes: limits.maxResponseBytes })
}
