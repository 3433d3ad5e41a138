/**
 * Every default that an operator may want to know, in one place. The reference page is made from this file.
 */

export const defaults = {
  schema: 'waybill',

  transaction: {
    statementTimeoutMs: 30_000,
    lockTimeoutMs: 5_000,
    idleInTransactionTimeoutMs: 30_000,
    retries: 5,
    retryBackoff: { firstMs: 10, maxMs: 1_000, jitter: 'full' },
  },
  stream: { maxBytes: 1_000_000, ordering: 'aggregate' },
  /** What one payload or one request body may stand for, besides its bytes. */
  budget: { maxValues: 250_000, maxDepth: 500 },
  loop: { backoff: { firstMs: 100, maxMs: 10_000 } },
  run: { stopTimeoutMs: 20_000, abortTimeoutMs: 5_000 },

  relay: {
    leaseMs: 5_000,
    renewMs: 1_500,
    batchSize: 500,
    drainSize: 5_000,
    publishTimeoutMs: 10_000,
    /** A batch that takes longer loses its lanes. */
    batchTimeoutMs: 30_000,
    busyMs: 5,
    idleMs: 50,
    maxAttempts: 20,
    backoff: { firstMs: 1_000, maxMs: 300_000 },
    breakerBackoff: { firstMs: 250, maxMs: 30_000 },
    /** How long events of a topic that takes nothing are left alone, unless it opens before. */
    topicRestMs: 300_000,
  },
  backlogReport: { everyMs: 5_000 },
  outboxRetention: {
    eventsMs: 259_200_000,
    receiptsMs: 259_200_000,
    sourcesMs: 3_024_000_000,
    batchSize: 50_000,
    idleMs: 5_000,
  },

  consumer: {
    mode: 'direct',
    processBatchSize: 1_000,
    leaseMs: 5_000,
    batchSize: 500,
    batchBytes: 4_194_304,
    lingerMs: 5,
    maxInFlight: 1_000,
    maxInFlightBytes: 67_108_864,
    concurrency: 4,
    handlerTimeoutMs: 60_000,
    statementTimeoutMs: 30_000,
    lockTimeoutMs: 5_000,
    maxAttempts: 10,
    maxCrashes: 3,
    backoff: { firstMs: 100, maxMs: 60_000 },
    onDead: 'hold',
    onPoison: 'dead-letter',
    onFork: 'signal',
    verify: 'off',
    maxVersionJump: 1_000_000,
    onVersionJump: 'signal',
    onUnknownStream: 'ignore',
    deltaStart: 'first',
    gapAlertMs: 60_000,
    pollMs: 1_000,
    /** How long a reader waits for its token. */
    waitMs: 500,
    waitPollMs: 10,
    maxWaiters: 10_000,
    maxFallbacks: 1_000,
    readyLagMs: 30_000,
  },
  deadLetters: {
    /** A letter that was redriven so often needs somebody to insist. */
    maxRedrives: 10,
  },
  inboxRetention: {
    /** Longer than the broker keeps messages, a dead letter waits, or a replay reaches back. */
    inboxMs: 3_024_000_000,
    attemptsMs: 3_024_000_000,
    deadLettersMs: 7_776_000_000,
    archiveMs: 604_800_000,
    /** The longest that Google Pub/Sub keeps a message. */
    brokerMs: 2_678_400_000,
    onShortMemory: 'refuse',
    batchSize: 50_000,
    idleMs: 5_000,
  },
  backfill: {
    rowsPerSecond: 500,
    batchSize: 100,
    /** Events that wait for a relay; while there are more, the backfill waits. */
    maxBacklog: 5_000,
    lockTimeoutMs: 200,
  },
  kafka: { maxInflatedBytes: 67_108_864 },
  claimCheck: { thresholdBytes: 256_000, maxBytes: 104_857_600, prefix: 'claims/', timeoutMs: 10_000 },
  /** Longer than any event may wait or be replayed. */
  blobRetention: { keepMs: 7_776_000_000, idleMs: 3_600_000 },

  ingest: {
    maxInFlight: 10_000,
    maxInFlightBytes: 67_108_864,
    /** A fact that waits longer for the broker makes it a slow one. */
    slowMs: 2_000,
    publishTimeoutMs: 10_000,
    batchSize: 500,
    batchBytes: 1_048_576,
    concurrency: 4,
    maxBodyBytes: 1_048_576,
    maxFacts: 1_000,
    retryAfterMs: 1_000,
    breakerBackoff: { firstMs: 250, maxMs: 5_000 },
  },
  ingestClient: {
    batchSize: 500,
    maxAttempts: 20,
    attemptTimeoutMs: 15_000,
    backoff: { firstMs: 100, maxMs: 10_000, jitter: 'full' },
  },

  command: {
    requestId: 'required',
    waitForWinnerMs: 0,
    /** A repeat waits this long for the run that holds the marker. */
    markerLockMs: 200,
    lockTimeoutMs: 5_000,
    statementTimeoutMs: 15_000,
    maxPerAggregate: 2,
    /** Where the size of the pool is not known; else half of it. */
    maxPerPrincipal: 5,
    maxQueued: 100,
    queueTimeoutMs: 5_000,
    retries: 5,
    retryBackoff: { firstMs: 5, maxMs: 250, jitter: 'full' },
    maxResponseBytes: 65_536,
    pendingTtlMs: 60_000,
    completedTtlMs: 3_600_000,
    cacheBudgetMs: 30,
    cacheBackoff: { firstMs: 200, maxMs: 5_000 },
  },
  memoryCache: { maxBytes: 33_554_432 },
  markerCleanup: {
    ttlMs: 3_600_000,
    /** Deleted this much later than the TTL promises. */
    marginPercent: 10,
    batchSize: 50_000,
    idleMs: 5_000,
    alertLagMs: 60_000,
  },

  /** What `waybill status --check` allows. */
  statusCheck: {
    maxLagMs: 30_000,
    maxBacklog: 100_000,
    maxParked: 0,
    maxDead: 0,
    maxGapMs: 60_000,
    maxCleanupLagMs: 60_000,
  },
  health: { maxLagMs: 30_000, maxPassAgeMs: 60_000, timeoutMs: 5_000 },
} as const

/** Those that no option changes. */
export const fixedDefaults: readonly string[] = [
  'transaction.retryBackoff',
  'loop.backoff',
  'relay.batchTimeoutMs',
  'relay.breakerBackoff',
  'relay.topicRestMs',
  'command.retryBackoff',
  'command.cacheBackoff',
]
