/** A local server of the google.pubsub.v1 protocol, to start from a program; `main.ts` is its command line. */
export { startPubsubServer } from './pubsub-server.ts'
export type { PubsubServer, PubsubServerOptions } from './pubsub-server.ts'
export { PubsubServerError } from './model/server-error.ts'
export type { PubsubServerErrorCode } from './model/server-error.ts'
export type { BrokerStats, SubscriptionStats } from './broker/broker.ts'
export type { Clock } from './model/clock.ts'
export type { FaultName, FaultOptions, Faults } from './model/faults.ts'
