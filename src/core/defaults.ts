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
  loop: { backoff: { firstMs: 100, maxMs: 10_000 } },
  run: { stopTimeoutMs: 20_000, abortTimeoutMs: 5_000 },
} as const
