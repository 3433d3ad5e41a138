/** The resources of the API as they are on the wire: plain objects, camelCase, 64-bit integers as numbers. */

export interface Duration {
  readonly seconds?: number
  readonly nanos?: number
}

export interface SchemaSettings {
  readonly schema?: string
  readonly encoding?: 'ENCODING_UNSPECIFIED' | 'JSON' | 'BINARY'
  readonly firstRevisionId?: string
  readonly lastRevisionId?: string
}

export interface TopicResource {
  readonly name: string
  readonly labels?: Readonly<Record<string, string>>
  readonly schemaSettings?: SchemaSettings
  readonly messageRetentionDuration?: Duration
  readonly ingestionDataSourceSettings?: object
  readonly messageTransforms?: readonly object[]
  readonly state?: string
}

export interface SubscriptionResource {
  readonly name: string
  readonly topic: string
  readonly pushConfig?: { readonly pushEndpoint?: string }
  readonly bigqueryConfig?: object
  readonly cloudStorageConfig?: object
  readonly bigtableConfig?: object
  readonly ackDeadlineSeconds?: number
  readonly retainAckedMessages?: boolean
  readonly messageRetentionDuration?: Duration
  readonly labels?: Readonly<Record<string, string>>
  readonly enableMessageOrdering?: boolean
  readonly expirationPolicy?: { readonly ttl?: Duration }
  readonly filter?: string
  readonly deadLetterPolicy?: { readonly deadLetterTopic?: string; readonly maxDeliveryAttempts?: number }
  readonly retryPolicy?: { readonly minimumBackoff?: Duration; readonly maximumBackoff?: Duration }
  readonly detached?: boolean
  readonly enableExactlyOnceDelivery?: boolean
  readonly topicMessageRetentionDuration?: Duration
  readonly messageTransforms?: readonly object[]
  readonly state?: string
}

export interface SnapshotResource {
  readonly name: string
  readonly topic: string
  readonly expireTime?: Duration
  readonly labels?: Readonly<Record<string, string>>
}

export interface SchemaResource {
  readonly name: string
  readonly type?: 'TYPE_UNSPECIFIED' | 'PROTOCOL_BUFFER' | 'AVRO'
  readonly definition?: string
  readonly revisionId?: string
  readonly revisionCreateTime?: Duration
}

export interface PolicyResource {
  readonly version?: number
  readonly etag?: Uint8Array
  readonly bindings?: ReadonlyArray<{ readonly role?: string; readonly members?: readonly string[]; readonly condition?: object }>
  readonly auditConfigs?: readonly object[]
}

/** The topic name of subscriptions whose topic was deleted. */
export const deletedTopic = '_deleted-topic_'

export function toMs(duration: Duration): number {
  return (duration.seconds ?? 0) * 1000 + (duration.nanos ?? 0) / 1e6
}

export function fromMs(ms: number): Duration {
  const seconds = Math.floor(ms / 1000)
  return { seconds, nanos: Math.round((ms - seconds * 1000) * 1e6) }
}
