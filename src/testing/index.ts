/**
 * For the tests of services that use this package, and for our own: real services that start in a moment, and the
 * means to break them on purpose and to prove that they broke.
 */
export { startChild } from './child.ts'
export type { Child, ChildOptions, Exit } from './child.ts'
export { startPostgres } from './embedded-postgres.ts'
export type { Postgres, PostgresOptions, StopMode } from './embedded-postgres.ts'
export { eventually } from './eventually.ts'
export type { EventuallyOptions } from './eventually.ts'
export { createFailpoints, withFailpoints } from './failpoint.ts'
export type { ArmedFailpoint, FailpointAction, FailpointPlace, Failpoints } from './failpoint.ts'
export { startFaultProxy } from './fault-proxy.ts'
export type { Direction, FaultProxy, FaultProxyOptions, Framer } from './fault-proxy.ts'
export type { FaultAction, FaultMoment, FaultRule } from './fault-rules.ts'
export { findPgBouncer, startPgBouncer } from './pgbouncer.ts'
export type { PgBouncer } from './pgbouncer.ts'
export { findSystemPostgres } from './postgres-binaries.ts'
export type { SystemPostgres } from './postgres-binaries.ts'
export { isCommitReply, isCommitRequest, isStatement, postgresFrames } from './postgres-frames.ts'
export { findRedis, startRedis } from './redis.ts'
export type { Redis } from './redis.ts'
export type { ServiceProcess } from './service-process.ts'
