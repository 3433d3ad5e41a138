/**
 * The public face of `waybill`: what a service imports. Brokers, frameworks and test tools have subpaths of their own.
 */
export {
  errorMeanings,
  grpcCodes,
  isWaybillError,
  meaningOf,
  WaybillError,
  type ErrorCode,
  type ErrorMeaning,
  type GrpcCode,
} from './core/errors.ts'
export { businessKeyId, newId, type KeyPart } from './core/event/id.ts'
export { businessKeyParts, businessKeyText, type BusinessKey } from './core/event/id.ts'
export {
  delta,
  state,
  tombstone,
  type EventData,
  type EventDefinition,
  type EventInput,
  type EventKind,
  type EventOptions,
} from './core/event/event.ts'
export { stream, type AnyStream, type EventType, type Ordering, type Stream, type StreamOptions } from './core/event/stream.ts'
export {
  createSigner,
  createVerifier,
  type Signer,
  type SignerOptions,
  type Verifier,
  type VerifierOptions,
  type VerifyingKey,
} from './core/event/signing.ts'
export { createTokens, type AggregateVersion, type TokenOptions, type Tokens } from './core/event/token.ts'
export { parseVersion, type Version } from './core/event/version.ts'
export { run, type Lifetime, type RunOptions, type Service } from './core/service/lifetime.ts'
export { createSignals, type SignalBus, type SignalName, type Signals } from './core/signals.ts'
export type { OpenSpan, SpanAttributes, SpanDetails, TraceHeaders, Tracing } from './core/tracing.ts'
export type { DataBudget } from './core/encoding/budget.ts'
export { jsonCodec, type Codec, type EventContext } from './core/encoding/codec.ts'
export type { BlobCallOptions, BlobStore } from './core/encoding/blob-store.ts'
export { claimCheck, type ClaimCheckOptions } from './codec/claim-check.ts'
export { createBlobRetention, type BlobRetention, type BlobRetentionOptions } from './codec/blob-retention.ts'
export { fileBlobStore, type FileBlobStoreOptions } from './codec/file-blob-store.ts'
export { postgresBlobStore, type PostgresBlobStoreOptions } from './postgres/blobs/postgres-blob-store.ts'
export type { StandardSchema } from './core/encoding/standard-schema.ts'
export { seededRandom, type Random } from './core/service/random.ts'
export type { Clock } from './core/service/clock.ts'
export type { BackoffOptions } from './core/service/backoff.ts'
export type { Chosen } from './core/options.ts'

export { transaction, type TransactionOptions } from './postgres/transaction/transaction.ts'
export { connect, type Connection, type ConnectOptions } from './postgres/connect.ts'
export type { PgPoolClient } from './postgres/adapters/borrow-client.ts'
export type { Database, Queryable, Tx } from './postgres/query/database.ts'
export { sql, name, type Name, type SqlValue, type Statement } from './postgres/query/sql.ts'
export { fromDrizzle } from './postgres/adapters/from-drizzle.ts'
export { fromKnex } from './postgres/adapters/from-knex.ts'
export { fromKysely } from './postgres/adapters/from-kysely.ts'
export { fromPg } from './postgres/adapters/from-pg.ts'
export { fromPostgresJs } from './postgres/adapters/from-postgres-js.ts'
export { fromPrisma } from './postgres/adapters/from-prisma.ts'
export { fromTypeOrm } from './postgres/adapters/from-type-orm.ts'
export { migrate, type MigrateOptions, type Migrated } from './postgres/schema/migrate.ts'
export { exportSql, type ExportSqlOptions } from './postgres/schema/export.ts'
export {
  migrationStatus,
  pendingMigrations,
  type MigrationStatus,
  type MigrationStatusOptions,
} from './postgres/schema/status.ts'
export type { Migration } from './postgres/schema/migration-files.ts'
export { adoptDeployment, assertSchema, type Adopted, type AdoptOptions } from './postgres/schema/deployment.ts'
export type { DeploymentNames } from './postgres/schema/deployment-names.ts'
export { defineConfig, type WaybillConfig } from './config/config.ts'

export {
  createOutbox,
  event,
  type AddOptions,
  type Added,
  type NewEvent,
  type Outbox,
  type OutboxOptions,
} from './outbox/outbox.ts'
export { createRelay, type Relay } from './outbox/relay/relay.ts'
export type { RelayOptions } from './outbox/relay/relay-options.ts'
export { createBacklogReport, type BacklogReportOptions } from './outbox/backlog/report.ts'
export { createOutboxRetention, type OutboxRetention, type OutboxRetentionOptions } from './outbox/operate/retention.ts'
export { createBackfill, type Backfill, type BackfillOptions, type BackfillReport } from './outbox/backfill/backfill.ts'
export { backfillFile, type BackfillFileOptions } from './outbox/backfill/file-source.ts'
export { backfillTable, type BackfillTableOptions } from './outbox/backfill/table-source.ts'
export type { BackfillMode } from './outbox/backfill/operation.ts'
export type { BackfillPage, BackfillSource } from './outbox/backfill/sources.ts'
export type { LaneHint } from './outbox/wake-up/lane-hints.ts'
export { notifyAfterCommit, type Notifying, type NotifyOptions } from './outbox/wake-up/notify.ts'
export {
  dropParked,
  listParked,
  redriveParked,
  skipParked,
  type DropAction,
  type ParkedAction,
  type ParkedEvent,
  type ParkedFilter,
  type ParkedOutcome,
} from './outbox/operate/parked.ts'
export { listPauses, pauseOutbox, resumeOutbox, type Pause, type PauseAction } from './outbox/operate/pause.ts'

export { memory, type MemoryOptions, type MemoryTransport } from './transport/memory/memory.ts'
export {
  postgresTransport,
  type PostgresTransport,
  type PostgresTransportOptions,
} from './transport/postgres/postgres-transport.ts'
export type {
  AckOutcome,
  Delivery,
  IncomingMessage,
  OutgoingMessage,
  Publisher,
  PublishOptions,
  PublishOutcome,
  ReceiveOptions,
  Receiver,
  SeekTarget,
  SnapshotTarget,
  Transport,
} from './transport/port/transport.ts'

export { createConsumer, type Consumer } from './consumer/consumer.ts'
export { processedBy, type ProcessedByOptions } from './consumer/operate/processed-by.ts'
export type { ConsumerOptions } from './consumer/model/consumer-options.ts'
export type { ConsumedEvent, Handler, HandlerContext } from './consumer/model/handler.ts'
export { discard, retryAfter, type Discarded, type RetryAfter } from './consumer/model/handler.ts'
export {
  groupDeadLetters,
  listDeadLetters,
  showDeadLetter,
  type ShowDeadLetterOptions,
  type DeadLetter,
  type DeadLetterDetail,
  type DeadLetterFilter,
  type DeadLetterGroup,
  type DeadLetterState,
  type DeadLetterStore,
} from './consumer/operate/dead-letters.ts'
export {
  planRedrive,
  redriveDeadLetters,
  resumeRedrive,
  type PlannedRedrive,
  type RedriveAction,
  type RedriveLimits,
  type RedriveOutcome,
  type RedriveVerdict,
} from './consumer/operate/redrive.ts'
export { discardDeadLetters, type DiscardAction, type DiscardOutcome } from './consumer/operate/discard.ts'
export { listRefused, type RefusedMessage, type RefusedOptions } from './consumer/failure/refused-messages.ts'
export { drainBrokerDeadLetters, type BrokerDeadLettersOptions } from './consumer/operate/broker-dead-letters.ts'
export { deadLetterDrains } from './consumer/operate/broker-dead-letters.ts'
export { pauseConsumer, resumeConsumer, type ConsumerPauseAction } from './consumer/operate/pause.ts'
export { createInboxRetention, type InboxRetention, type InboxRetentionOptions } from './consumer/operate/retention.ts'
export { replayConsumer, type ReplayOptions } from './consumer/operate/replay.ts'
export type { InsertOptions } from './projection/fact-table.ts'
export type { ColumnValue, ProjectedEvent, ProjectOptions } from './projection/projection.ts'
export type { NotReadyCode, Readiness } from './projection/readiness.ts'
export type { NotServed, ProjectionRow, ReadOptions, WaitForOptions } from './projection/reads.ts'
export { readTokenHeader, writeTokenHeader, type HeadersLike } from './projection/token-header.ts'
export { abandonRebuild, dropReplaced, rebuild, type RebuildOptions, type RebuildReport } from './ops/rebuild/rebuild.ts'
export type { RebuildProgress } from './ops/rebuild/run.ts'
export type { Comparison } from './ops/rebuild/shadow.ts'

export {
  lockAggregate,
  lockAggregates,
  type Aggregate,
  type LockedAggregate,
  type LockOptions,
} from './command/model/aggregate.ts'
export { bulk, type BulkItem, type BulkOptions } from './command/bulk.ts'
export type { RunRequest } from './command/pipeline/admit.ts'
export type { CommandCache } from './command/cache/cache.ts'
export type { CommandOutbox, EmitOptions } from './command/model/command.ts'
export {
  command,
  type Command,
  type CommandOptions,
  type ExecuteContext,
  type PlanContext,
  type Planned,
  type RequestContext,
} from './command/model/command.ts'
export { createCommands, type Commands, type CommandsOptions } from './command/commands.ts'
export { createMarkerCleanup, type MarkerCleanup, type MarkerCleanupOptions } from './command/marker-cleanup.ts'
export { memoryCache, type MemoryCacheOptions } from './command/cache/memory.ts'
export { ioredisCache, nodeRedisCache, type RedisCacheOptions } from './command/cache/redis.ts'
export { reject, versionConflict, type Rejection } from './command/model/rejection.ts'
export type { ResponseCodec, ResponseContext } from './command/model/response-codec.ts'
export type { MissingRequestIds, RequestIdPhase } from './command/model/request-ids.ts'
export {
  commandErrorCodes,
  type CommandErrorCode,
  type Executed,
  type Failed,
  type Outcome,
  type Rejected,
  type Replayed,
} from './command/model/outcome.ts'
export { httpAnswer, rpcStatus, tokenHeader, type HttpAnswer, type RpcStatus } from './command/http-status.ts'

export { createIngest, type AcceptOptions, type FactStatus, type Ingest } from './ingest/ingest.ts'
export type { IngestOptions } from './ingest/ingest-options.ts'
export { factId, type FactName } from './ingest/fact.ts'
export type { FactOutbox, FactTarget } from './ingest/fact-sink.ts'
export type { Accepted, FactOutcome, IngestErrorCode, Refused } from './ingest/fact-outcome.ts'
export { createIngestClient, type IngestClient, type IngestClientOptions, type SendOptions } from './ingest/ingest-client.ts'

export { createMetrics, type Metrics, type MetricsOptions } from './telemetry/metrics.ts'
export { logSignals, type LogEntry, type LogFields, type LogSignalsOptions } from './telemetry/log-signals.ts'
export type { LogLevel } from './telemetry/log-rules.ts'
export {
  startTelemetryServer,
  telemetryListener,
  type TelemetryParts,
  type TelemetryServer,
  type TelemetryServerOptions,
} from './telemetry/telemetry-server.ts'

export {
  status,
  type ConsumerReport,
  type HeldKey,
  type OutboxReport,
  type RecentDelays,
  type Status,
  type StatusOptions,
} from './ops/status/status.ts'
export { checkStatus, type StatusFinding, type StatusLimits, type StatusProblem } from './ops/status/check.ts'
export { trace } from './ops/trace/trace.ts'
export { traceTimeline, type TraceEntry } from './ops/trace/timeline.ts'
export type {
  DeliveryState,
  Trace,
  TracedDelivery,
  TracedDispatch,
  TracedEvent,
  TracedProjection,
  TracedPublish,
  TracedRequest,
  TracedService,
  TraceOptions,
} from './ops/trace/report.ts'
export { createHealth, type Health, type HealthOptions, type HealthReason, type HealthReport } from './ops/status/health.ts'
export { listGaps, repairGap, type Gap, type GapOptions, type RepairedGap, type RepairOptions } from './ops/repair/repair-gap.ts'
export { recordedProblems, recordEvent, type RecordedEvent } from './ops/trace/recorded-events.ts'
