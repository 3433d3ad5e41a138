/**
 * Idempotent commands: `commands.run` is the one way to run a command, and it always goes through the pipeline.
 *
 * Three layers, one effect: a cache that answers repeats fast (optional), a marker in the command's own transaction that
 * decides, and versions of aggregates that order different requests. See pipeline/run.ts for the order of the steps.
 */
import { systemClock, type Clock } from '../core/service/clock.ts'
import { defaults } from '../core/defaults.ts'
import { WaybillError } from '../core/errors.ts'
import { oneOf, resolve, wholeBetween } from '../core/options.ts'
import { systemRandom, type Random } from '../core/service/random.ts'
import { assertStrongSecret } from '../core/secret.ts'
import { defaultSignals, type SignalBus } from '../core/signals.ts'
import { createTokens, type Tokens } from '../core/event/token.ts'
import { noTracing, type TraceHeaders, type Tracing } from '../core/tracing.ts'
import { connectionsOf, type Database, type Isolation } from '../postgres/query/database.ts'
import { transactionOptions } from '../postgres/transaction/transaction.ts'
import { answerGraceMs, withDeadlines } from '../postgres/transaction/deadline.ts'
import { admit, winnerWait, type Admitted, type RunRequest } from './pipeline/admit.ts'
import type { CommandCache } from './cache/cache.ts'
import { deploymentScope, noScope } from './cache/scope.ts'
import { createCommandGate } from './pipeline/gate.ts'
import { type CommandOutbox, definitionOf, type AnyCommand, type Command } from './model/command.ts'
import { commandTables } from './model/command.sql.ts'
import { executePlan } from './pipeline/execute.ts'
import { fingerprint } from './pipeline/fingerprint.ts'
import { guardCache, noCache } from './cache/bounded-cache.ts'
import { postgresMarkers } from './model/markers.ts'
import type { Outcome } from './model/outcome.ts'
import { refuseInside } from './pipeline/open-command.ts'
import { runPipeline, type Pipeline } from './pipeline/run.ts'
import { plainResponses, type ResponseCodec } from './model/response-codec.ts'
import { createRequestIds, type MissingRequestIds, type RequestIdPhase, type RequestIds } from './model/request-ids.ts'

export interface CommandsOptions {
  readonly db: Database
  /** Where emitted events go, in the command's own transaction. */
  readonly outbox: CommandOutbox
  /** Answers repeats without a transaction: `ioredisCache`, `nodeRedisCache`, `memoryCache`. @default none */
  readonly cache?: CommandCache | undefined
  /**
   * Seals the entries of the cache, so that only processes with the same secret are believed; 32 random bytes as base64. To replace
   * it, deploy another one: the old entries count as nothing. @default none, and whoever can write to the cache is believed
   */
  readonly cacheSecret?: string | undefined
  /** The schema that holds the markers and the outbox. @default 'waybill' */
  readonly schema?: string
  /** Makes consistency tokens; give it what the outbox has. @default unsigned tokens */
  readonly tokens?: Tokens
  /** Whether commands may come without a request id, for the time until all clients send one. @default 'required' */
  readonly requestId?: RequestIdPhase
  /** How long a repeat waits for the run that is under way. @default 0 */
  readonly waitForWinnerMs?: number
  /** @default 'read committed' */
  readonly isolation?: Isolation
  /** How long the marker's insert waits for a run of the same request. @default 200 */
  readonly markerLockMs?: number
  /** How long any later statement waits for a lock. @default 5_000 */
  readonly lockTimeoutMs?: number
  /** How long a statement may take. @default 15_000 */
  readonly statementTimeoutMs?: number
  /** Commands of one aggregate that hold or await a connection, at most; the others wait in line without one. @default 2 */
  readonly maxPerAggregate?: number
  /** The same for one principal. @default half of the pool's connections; 5 where their number is not known */
  readonly maxPerPrincipal?: number
  /** Commands in line for one aggregate, and for one principal, at most; one more is OVERLOADED. @default 100 */
  readonly maxQueued?: number
  /** The longest that a command waits in line; then it is OVERLOADED. @default 5_000 */
  readonly queueTimeoutMs?: number
  /** How often an attempt that lost a race is made again. @default 5 */
  readonly retries?: number
  /** How responses and rejections are kept for repeats, such as encrypted. @default as plain JSON */
  readonly responses?: ResponseCodec
  /** A longer response is not kept for repeats. @default 65_536 */
  readonly maxResponseBytes?: number
  /** How long an entry of the cache lasts whose run neither renews nor ends it. Must exceed the longest transaction. @default 60_000 */
  readonly pendingTtlMs?: number
  /** How long the cache answers repeats; at most the TTL of markers. @default 3_600_000 */
  readonly completedTtlMs?: number
  /** A call of the cache may take this long. @default 30 */
  readonly cacheBudgetMs?: number
  readonly signals?: SignalBus
  /** Makes each command a span, such as `openTelemetryTracing()`. @default none */
  readonly tracing?: Tracing
  readonly clock?: Clock
  readonly random?: Random
}

export interface Commands {
  /** Runs a command once, however often it is asked to; the outcome says which it was. What your own functions threw is thrown on. */
  run<Input, Response>(command: Command<Input, Response>, request: RunRequest<Input>): Promise<Outcome<Response>>
  /** Who sent commands without a request id. */
  missingRequestIds(): readonly MissingRequestIds[]
  /** Makes request ids mandatory from now on; returns, and warns about, who still sent none lately. */
  requireRequestIds(): readonly MissingRequestIds[]
}

type Settings = Required<CommandsOptions>

export function createCommands(options: CommandsOptions): Commands {
  const settings = resolveOptions(options)
  return createCommandsOn(createPipeline(settings), settings)
}

/** The pipeline as `createCommands` puts it together. */
export function createPipeline(settings: Settings): Pipeline {
  const { db, outbox, tokens, signals, clock, random, cache, cacheBudgetMs: budgetMs, pendingTtlMs, completedTtlMs } = settings
  const { tracing, isolation, markerLockMs, lockTimeoutMs, statementTimeoutMs, retries, maxResponseBytes } = settings
  const { maxPerAggregate, maxPerPrincipal, maxQueued, queueTimeoutMs } = settings
  const { retryBackoff } = defaults.command
  const tables = commandTables(settings.schema)
  const limited = { statementTimeoutMs, lockTimeoutMs, signals, clock, random }
  const attempt = { ...limited, isolation, retries: 0, onUnknown: 'throw' } as const
  const entries = { secret: settings.cacheSecret, isPlain: settings.responses === plainResponses, maxResponseBytes }
  const guard = { budgetMs, pendingTtlMs, completedTtlMs, ...entries, signals, clock, random }
  return {
    // A connection that fell silent must not hold a caller for ever.
    db: withDeadlines(db, { statementMs: statementTimeoutMs + answerGraceMs, clock }),
    gate: createCommandGate({ maxPerAggregate, maxPerPrincipal, maxQueued, queueTimeoutMs, markerLockMs, signals, clock }),
    schema: settings.schema,
    tables,
    outbox,
    tokens,
    responses: settings.responses,
    signals,
    tracing,
    clock,
    random,
    fingerprint,
    execute: executePlan,
    markers: postgresMarkers(tables),
    cache: cache === undefined ? noCache : guardCache(cache, guard),
    cacheScope: cache === undefined ? noScope : deploymentScope(db, settings.schema, { signals, clock }),
    limits: { markerLockMs, lockTimeoutMs, retries, retryBackoff, maxResponseBytes },
    transactions: {
      claiming: transactionOptions({ ...attempt, lockTimeoutMs: markerLockMs }),
      unclaimed: transactionOptions(attempt),
      loading: transactionOptions({ ...limited, isolation: 'repeatable read', readOnly: true, onUnknown: 'throw' }),
    },
  }
}

/** Commands on a pipeline that was put together elsewhere. */
export function createCommandsOn(
  pipeline: Pipeline,
  { requestId, waitForWinnerMs }: Pick<Settings, 'requestId' | 'waitForWinnerMs'>,
): Commands {
  const { signals, clock } = pipeline
  const requestIds: RequestIds = createRequestIds({ phase: requestId, clock, signals })
  const names = new Map<string, AnyCommand>()
  const parts = { fingerprint: pipeline.fingerprint, tokens: pipeline.tokens, requestIds, waitForWinnerMs }
  return {
    run: async <Input, Response>(command: Command<Input, Response>, request: RunRequest<Input>) => {
      assertOneName(names, command)
      const startedAtMs = clock.monotonicMs()
      try {
        refuseInside(pipeline.db, command.name)
        const admitted = await admit(parts, command, request)
        const outcome = 'status' in admitted ? admitted : await traced(pipeline, admitted, request.trace)
        report(signals, command.name, outcome, clock.monotonicMs() - startedAtMs)
        return outcome as Outcome<Response>
      } catch (error) {
        // It has no outcome: untold, a release in which every command throws would look like a quiet one.
        signals.emit('command.threw', { command: command.name, error })
        throw error
      }
    },
    missingRequestIds: () => requestIds.missing(),
    requireRequestIds: () => requestIds.require(),
  }
}

/** The pipeline as a span: of the active trace, or else of the one that the request came with. */
async function traced(pipeline: Pipeline, admitted: Admitted, trace: TraceHeaders | undefined): Promise<Outcome> {
  const { tracing } = pipeline
  if (!tracing.isOn) return await runPipeline(pipeline, admitted)
  const name = `command ${admitted.definition.name}`
  const parent = tracing.headers()['traceparent'] === undefined ? trace : undefined
  const attributes = { 'waybill.command': admitted.definition.name }
  return await tracing.span({ name, kind: 'internal', attributes, parent }, async (span) => {
    const outcome = await runPipeline(pipeline, admitted)
    span.set({ 'waybill.outcome': outcome.status === 'failed' ? outcome.code : outcome.status })
    return outcome
  })
}

/** Fills and checks the options. */
export function resolveOptions(options: CommandsOptions): Settings {
  const { retryBackoff: _own, cacheBackoff: _its, ...numbers } = defaults.command
  const whole = wholeBetween(1, 2_147_483_647)
  const settings = resolve<Settings>(
    'commands',
    {
      ...numbers,
      db: options.db,
      outbox: options.outbox,
      cache: undefined,
      cacheSecret: undefined,
      schema: defaults.schema,
      maxPerPrincipal: shareOfPool(options.db),
      tokens: createTokens(),
      responses: plainResponses,
      isolation: 'read committed',
      signals: defaultSignals,
      tracing: noTracing,
      clock: systemClock,
      random: systemRandom,
    },
    options,
    {
      requestId: oneOf('optional', 'required'),
      ...winnerWait,
      isolation: oneOf('read committed', 'repeatable read', 'serializable'),
      markerLockMs: whole,
      lockTimeoutMs: whole,
      statementTimeoutMs: whole,
      maxPerAggregate: wholeBetween(1, 10_000),
      maxPerPrincipal: wholeBetween(1, 10_000),
      maxQueued: wholeBetween(0, 1_000_000),
      queueTimeoutMs: wholeBetween(0, 600_000),
      retries: wholeBetween(0, 100),
      maxResponseBytes: wholeBetween(0, 16_777_216),
      pendingTtlMs: whole,
      completedTtlMs: whole,
      cacheBudgetMs: whole,
    },
  )
  const { db, outbox } = settings as { readonly db?: Database; readonly outbox?: CommandOutbox }
  if (typeof db?.attempt !== 'function' || typeof outbox?.addMany !== 'function')
    throw new WaybillError('INVALID_OPTION', 'commands: give it db, from an adapter such as fromPg(pool), and outbox.')
  if (settings.cacheSecret !== undefined) assertStrongSecret('commands.cacheSecret', settings.cacheSecret)
  if (settings.lockTimeoutMs <= settings.markerLockMs)
    throw new WaybillError('INVALID_OPTION', 'commands.lockTimeoutMs: must exceed markerLockMs, which bounds the first wait.')
  if (settings.pendingTtlMs <= settings.statementTimeoutMs)
    throw new WaybillError('INVALID_OPTION', 'commands.pendingTtlMs: must exceed statementTimeoutMs, or a slow run looks dead.')
  return settings
}

/** Half of the pool, so that one principal leaves connections to the others: where its size shows, as with node-postgres, postgres.js and Knex. */
function shareOfPool(db: Database | undefined): number {
  interface Sized {
    readonly options?: { readonly max?: unknown }
    readonly pool?: { readonly max?: unknown }
  }
  const pool = db === undefined ? {} : (connectionsOf(db) as Sized)
  const max = pool.options?.max ?? pool.pool?.max
  return typeof max === 'number' && Number.isInteger(max) && max > 0 ? Math.ceil(max / 2) : defaults.command.maxPerPrincipal
}

/** Two commands of one name would take each other's request ids for repeats. */
function assertOneName(names: Map<string, AnyCommand>, command: AnyCommand): void {
  const { name } = definitionOf(command)
  const known = names.get(name)
  if (known === command) return
  if (known !== undefined)
    throw new WaybillError('INVALID_OPTION', `There are two commands called ${name}. Declare it once, at the top of a module.`)
  names.set(name, command)
}

function report(signals: SignalBus, command: string, outcome: Outcome, durationMs: number): void {
  const { status } = outcome
  if (status === 'executed') signals.emit('command.executed', { command, durationMs, attempts: outcome.attempts })
  else if (status === 'replayed') signals.emit('command.replayed', { command, from: outcome.from })
  else if (status === 'rejected') {
    const { reason, replayed } = outcome
    signals.emit('command.rejected', { command, reason, replayed })
  } else signals.emit('command.failed', { command, code: outcome.code })
}
