/** The states of an event, in the words of the view `outbox_status`. */
export const outboxStates = ['PENDING', 'INFLIGHT', 'RELEASED', 'HELD', 'PARKED', 'PUBLISHED'] as const
export type OutboxState = (typeof outboxStates)[number]
