/**
 * `waybill/pubsub`: Google Pub/Sub as a transport, and what brings a project to what a service needs of it.
 */
export { pubsub, type PubsubOptions } from './transport/pubsub/pubsub.ts'
export { createPubsubAdmin, type PubsubAdmin, type PubsubAdminOptions, type PubsubGrant } from './transport/pubsub/admin/admin.ts'
export type { SchemaSettings, SubscriptionSettings, TopicSettings } from './transport/pubsub/admin/resources.ts'
export { doctorPubsub, type DoctorPubsubOptions, type PubsubFinding, type PubsubProblem } from './ops/doctor/pubsub.ts'
export {
  desiredResources,
  type DesiredResources,
  type ProvisionedConsumer,
  type ProvisionedStream,
  type ProvisionOptions,
} from './ops/provision/desired.ts'
export {
  applyProvision,
  planProvision,
  type Difference,
  type ProvisionChange,
  type ProvisionPlan,
} from './ops/provision/provision.ts'
export { gcloudText, planText, terraformText } from './ops/provision/print.ts'
