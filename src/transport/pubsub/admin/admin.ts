/**
 * Reading and changing the resources of a Pub/Sub project: the few calls that provisioning and doctor need.
 *
 * What is not there is `undefined`, not an error. Grants are added to the policy that is there, and again when somebody else
 * changed it meanwhile: a policy is never replaced by what we believe it to be.
 */
import { resolve, wholeBetween } from '../../../core/options.ts'
import { LazyConnection, type PubsubConnectOptions } from '../client/connection.ts'
import { pubsubError, status, statusOf } from '../client/errors.ts'
import { schemaPath, subscriptionPath, topicPath } from '../client/names.ts'
import {
  fromWireSubscription,
  fromWireTopic,
  subscriptionFields,
  topicFields,
  toWireSubscription,
  toWireTopic,
  type Paths,
  type SchemaSettings,
  type SubscriptionSettings,
  type TopicSettings,
  type WireSubscription,
  type WireTopic,
} from './resources.ts'

/** One member's role on one resource. */
export interface PubsubGrant {
  readonly kind: 'topic' | 'subscription'
  readonly name: string
  readonly role: string
  readonly member: string
}

export interface PubsubAdmin {
  getTopic(name: string): Promise<TopicSettings | undefined>
  createTopic(topic: TopicSettings): Promise<void>
  updateTopic(topic: TopicSettings, fields: readonly (keyof typeof topicFields)[]): Promise<void>
  /** Its subscriptions stay, and get nothing more. */
  deleteTopic(name: string): Promise<void>
  /** The short names of the subscriptions of a topic. */
  subscriptionsOf(topic: string): Promise<readonly string[]>
  getSubscription(name: string): Promise<SubscriptionSettings | undefined>
  createSubscription(subscription: SubscriptionSettings): Promise<void>
  updateSubscription(subscription: SubscriptionSettings, fields: readonly (keyof typeof subscriptionFields)[]): Promise<void>
  /** Everything that it or its topic keeps is delivered, also what was acknowledged. */
  seekToStart(name: string): Promise<void>
  /** What waits in it is gone. */
  deleteSubscription(name: string): Promise<void>
  getSchema(name: string): Promise<SchemaSettings | undefined>
  createSchema(schema: SchemaSettings): Promise<void>
  /** A new revision of a schema that is there. */
  commitSchema(schema: SchemaSettings): Promise<void>
  grantsOn(kind: PubsubGrant['kind'], name: string): Promise<readonly PubsubGrant[]>
  grant(grant: PubsubGrant): Promise<void>
  close(): Promise<void>
}

export interface PubsubAdminOptions {
  readonly projectId: string
  readonly apiEndpoint?: string
  readonly emulatorHost?: string
  /** @default {} */
  readonly clientOptions?: Readonly<Record<string, unknown>>
  /** @default 30_000 */
  readonly callTimeoutMs?: number
}

interface Policy {
  readonly bindings?: readonly { readonly role: string; readonly members: readonly string[] }[] | null
}

export function createPubsubAdmin(options: PubsubAdminOptions): PubsubAdmin {
  const settings = resolve<PubsubConnectOptions & { readonly callTimeoutMs: number }>(
    'pubsub admin',
    { projectId: '', apiEndpoint: undefined, emulatorHost: undefined, clientOptions: {}, callTimeoutMs: 30_000 },
    options,
    { callTimeoutMs: wholeBetween(1, 600_000) },
  )
  const { projectId, callTimeoutMs } = settings
  const publisher = new LazyConnection('Publisher', settings)
  const subscriber = new LazyConnection('Subscriber', settings)
  const schemas = new LazyConnection('SchemaService', settings)
  const paths: Paths = {
    topic: (name) => topicPath(projectId, name),
    subscription: (name) => subscriptionPath(projectId, name),
    schema: (name) => schemaPath(projectId, name),
  }
  return {
    ...topicCalls(asked(publisher, callTimeoutMs), paths),
    ...subscriptionCalls(asked(subscriber, callTimeoutMs), paths),
    ...schemaCalls(asked(schemas, callTimeoutMs), paths, projectId),
    ...grantCalls(publisher, paths, callTimeoutMs),
    close: async () => void (await Promise.all([publisher.close(), subscriber.close(), schemas.close()])),
  }
}

/** A call whose errors are ours; the routing header names the one field that names the resource. */
type Ask = <Response>(method: string, request: object, routing: Readonly<Record<string, string>>) => Promise<Response>

function asked(connection: LazyConnection, timeoutMs: number): Ask {
  return async (method, request, routing) => {
    try {
      return await connection.call(method, request, { routing, timeoutMs })
    } catch (error) {
      throw pubsubError(error, `${method} ${Object.values(routing).join(' ')}`)
    }
  }
}

function topicCalls(
  ask: Ask,
  paths: Paths,
): Pick<PubsubAdmin, 'getTopic' | 'createTopic' | 'updateTopic' | 'deleteTopic' | 'subscriptionsOf'> {
  return {
    deleteTopic: async (name) => {
      const topic = paths.topic(name)
      await orMissing(ask('deleteTopic', { topic }, { topic }))
    },
    getTopic: async (name) => {
      const topic = paths.topic(name)
      const wire = await orMissing(ask<WireTopic>('getTopic', { topic }, { topic }))
      return wire === undefined ? undefined : fromWireTopic(wire)
    },
    createTopic: async (topic) => {
      const wire = toWireTopic(topic, paths)
      await ask('createTopic', wire, { name: wire.name })
    },
    updateTopic: async (topic, fields) => {
      const wire = toWireTopic(topic, paths)
      const updateMask = { paths: fields.map((field) => topicFields[field]) }
      await unlessUnimplemented(ask('updateTopic', { topic: wire, updateMask }, { 'topic.name': wire.name }))
    },
    subscriptionsOf: async (name) => {
      const topic = paths.topic(name)
      const names: string[] = []
      let pageToken = ''
      do {
        const request = { topic, pageSize: 1_000, pageToken }
        const page = await ask<{ subscriptions: readonly string[]; nextPageToken: string }>('listTopicSubscriptions', request, {
          topic,
        })
        names.push(...page.subscriptions.map((path) => path.slice(path.lastIndexOf('/') + 1)))
        pageToken = page.nextPageToken
      } while (pageToken !== '')
      return names
    },
  }
}

/** Google's emulator cannot change a topic. It keeps everything for ever, so nothing is amiss there. */
async function unlessUnimplemented(asking: Promise<unknown>): Promise<void> {
  try {
    await asking
  } catch (error) {
    if (statusOf((error as Error).cause) !== status.unimplemented) throw error
  }
}

function subscriptionCalls(
  ask: Ask,
  paths: Paths,
): Pick<PubsubAdmin, 'getSubscription' | 'createSubscription' | 'updateSubscription' | 'seekToStart' | 'deleteSubscription'> {
  return {
    deleteSubscription: async (name) => {
      const subscription = paths.subscription(name)
      await orMissing(ask('deleteSubscription', { subscription }, { subscription }))
    },
    getSubscription: async (name) => {
      const subscription = paths.subscription(name)
      const wire = await orMissing(ask<WireSubscription>('getSubscription', { subscription }, { subscription }))
      return wire === undefined ? undefined : fromWireSubscription(wire)
    },
    createSubscription: async (subscription) => {
      const wire = toWireSubscription(subscription, paths)
      await ask('createSubscription', wire, { name: wire.name })
    },
    updateSubscription: async (subscription, fields) => {
      const wire = toWireSubscription(subscription, paths)
      const updateMask = { paths: fields.map((field) => subscriptionFields[field]) }
      await ask('updateSubscription', { subscription: wire, updateMask }, { 'subscription.name': wire.name })
    },
    seekToStart: async (name) => {
      const subscription = paths.subscription(name)
      await ask('seek', { subscription, time: { seconds: 0 } }, { subscription })
    },
  }
}

function schemaCalls(
  ask: Ask,
  paths: Paths,
  projectId: string,
): Pick<PubsubAdmin, 'getSchema' | 'createSchema' | 'commitSchema'> {
  return {
    getSchema: async (name) => {
      const path = paths.schema(name)
      const wire = await orMissing(ask<SchemaSettings>('getSchema', { name: path, view: 'FULL' }, { name: path }))
      return wire === undefined ? undefined : { name, type: wire.type, definition: wire.definition }
    },
    createSchema: async ({ name, type, definition }) => {
      const parent = `projects/${projectId}`
      await ask('createSchema', { parent, schemaId: name, schema: { name: paths.schema(name), type, definition } }, { parent })
    },
    commitSchema: async ({ name, type, definition }) => {
      const path = paths.schema(name)
      await ask('commitSchema', { name: path, schema: { name: path, type, definition } }, { name: path })
    },
  }
}

function grantCalls(connection: LazyConnection, paths: Paths, timeoutMs: number): Pick<PubsubAdmin, 'grantsOn' | 'grant'> {
  const policyOf = (resource: string): Promise<Policy> => connection.iam<Policy>('getIamPolicy', { resource }, timeoutMs)
  return {
    grantsOn: async (kind, name) => {
      const resource = paths[kind](name)
      const asking = policyOf(resource).catch((error: unknown) => {
        throw pubsubError(error, `getIamPolicy ${resource}`)
      })
      const { bindings } = (await orMissing(asking)) ?? {}
      return (bindings ?? []).flatMap(({ role, members }) => members.map((member) => ({ kind, name, role, member })))
    },
    grant: async ({ kind, name, role, member }) => {
      const resource = paths[kind](name)
      for (let attempt = 1; ; attempt += 1) {
        try {
          const policy = await policyOf(resource)
          const others = (policy.bindings ?? []).filter((binding) => binding.role !== role)
          const members = (policy.bindings ?? []).flatMap((binding) => (binding.role === role ? binding.members : []))
          const bindings = [...others, { role, members: [...new Set([...members, member])] }]
          await connection.iam('setIamPolicy', { resource, policy: { ...policy, bindings } }, timeoutMs)
          return
        } catch (error) {
          // Somebody else changed the policy since we read it.
          if (statusOf(error) === status.aborted && attempt < 5) continue
          throw pubsubError(error, `setIamPolicy ${resource}`)
        }
      }
    },
  }
}

async function orMissing<Value>(asking: Promise<Value>): Promise<Value | undefined> {
  try {
    return await asking
  } catch (error) {
    if ((error as { readonly code?: unknown }).code === 'NOT_FOUND') return undefined
    throw error
  }
}
