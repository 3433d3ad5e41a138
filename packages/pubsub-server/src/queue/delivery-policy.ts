/** What a subscription's configuration means to its queue, in milliseconds and plain switches. */
export interface DeliveryPolicy {
  readonly isOrdered: boolean
  readonly isExactlyOnce: boolean
  readonly retainsAcked: boolean
  readonly retentionMs: number
  /** Null redelivers at once. */
  readonly retry: { readonly minMs: number; readonly maxMs: number } | null
  /** Zero means that nothing is dead-lettered and delivery attempts are not reported. */
  readonly maxDeliveryAttempts: number
}

/** How long a message waits after its nth failure: doubling from the minimum, never above the maximum. */
export function redeliveryDelayMs(policy: DeliveryPolicy, failures: number): number {
  if (policy.retry === null) return 0
  const { minMs, maxMs } = policy.retry
  return Math.round(Math.min(maxMs, minMs * 2 ** Math.min(failures - 1, 64)))
}
