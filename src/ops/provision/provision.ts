/**
 * Brings a Pub/Sub project to what a service needs: compared first, shown as a difference, then changed.
 *
 * A plan is data and changes nothing. Applying it twice changes nothing the second time. Nothing is ever deleted: what the
 * plan does not know belongs to somebody else. What the service cannot change in place is said, and nothing is applied then.
 */
import { isDeepStrictEqual } from 'node:util'
import { WaybillError } from '../../core/errors.ts'
import type { PubsubAdmin, PubsubGrant } from '../../transport/pubsub/admin/admin.ts'
import {
  subscriptionFields,
  topicFields,
  type SchemaSettings,
  type SubscriptionSettings,
  type TopicSettings,
} from '../../transport/pubsub/admin/resources.ts'
import { type DesiredResources, isProvisional, provisional } from './desired.ts'

export interface Difference {
  readonly field: string
  readonly from: unknown
  readonly to: unknown
}

interface ChangeOf<Kind extends string, Settings> {
  readonly kind: Kind
  readonly name: string
  /** `blocked`: it is there, and the difference cannot be changed in place. */
  readonly action: 'create' | 'update' | 'blocked'
  readonly settings: Settings
  /** Of one that is made: what is changed once it is there. */
  readonly differences: readonly Difference[]
}

type TopicChange = ChangeOf<'topic', TopicSettings>

interface SubscriptionChange extends ChangeOf<'subscription', SubscriptionSettings> {
  /** It is sought to the beginning: it gets what its topic has kept since that was made. */
  readonly isFromStart: boolean
}

export type ProvisionChange =
  | ChangeOf<'schema', SchemaSettings>
  | TopicChange
  | SubscriptionChange
  | { readonly kind: 'grant'; readonly name: string; readonly action: 'grant'; readonly grant: PubsubGrant }

export interface ProvisionPlan {
  readonly changes: readonly ProvisionChange[]
  readonly notes: readonly string[]
}

/** What would have to be changed; empty when the project is as it should be. */
export async function planProvision(admin: PubsubAdmin, desired: DesiredResources): Promise<ProvisionPlan> {
  const schemas = await Promise.all(
    desired.schemas.map(async (wanted) => compareSchema(wanted, await admin.getSchema(wanted.name))),
  )
  const topics = await Promise.all(
    desired.topics.map(async (wanted) => topicChanges(wanted, await admin.getTopic(wanted.name), desired)),
  )
  const unfinished = new Set(topics.map(({ last }) => last?.name))
  const subscriptions = await Promise.all(
    desired.subscriptions.map(async (wanted) =>
      subscriptionChange(wanted, await admin.getSubscription(wanted.name), unfinished.has(wanted.topic)),
    ),
  )
  const grants = await missingGrants(admin, desired.grants)
  const changes: readonly (ProvisionChange | undefined)[] = [
    ...schemas,
    ...topics.map(({ first }) => first),
    ...subscriptions,
    ...topics.map(({ last }) => last),
    ...grants.map((grant) => ({ kind: 'grant', name: grant.name, action: 'grant', grant }) as const),
  ]
  return { changes: changes.filter((change) => change !== undefined), notes: desired.notes }
}

/** How to change what cannot be changed in place. A subscription begins with what comes after it, whatever its topic keeps. */
export const howToMakeAnew =
  'What is published while a subscription is not there reaches nobody. So first let nothing be published to its topic: pause every stream of it (waybill outbox pause --stream <type>) or stop its relays. Let the consumer drain what it has, delete what cannot be changed, run waybill provision --apply, and resume.'

/** Makes the changes, in an order in which each finds what it needs. REFUSED, before any, if one of them is blocked. */
export async function applyProvision(
  admin: PubsubAdmin,
  plan: ProvisionPlan,
  onChange: (change: ProvisionChange) => void = () => undefined,
): Promise<void> {
  const blocked = plan.changes.filter(({ action }) => action === 'blocked')
  if (blocked.length > 0) {
    const names = blocked.map(({ kind, name }) => `${kind} ${name}`).join(', ')
    throw new WaybillError('REFUSED', `These cannot be changed in place: ${names}. ${howToMakeAnew}`)
  }
  for (const change of plan.changes) {
    await apply(admin, change)
    onChange(change)
  }
}

/** The grants that are not there yet. */
export async function missingGrants(admin: PubsubAdmin, grants: readonly PubsubGrant[]): Promise<readonly PubsubGrant[]> {
  const resources = new Map(grants.map(({ kind, name }) => [`${kind}/${name}`, { kind, name }]))
  const held = await Promise.all([...resources.values()].map(({ kind, name }) => admin.grantsOn(kind, name)))
  const there = new Set(held.flat().map(grantKey))
  return grants.filter((grant) => !there.has(grantKey(grant)))
}

function grantKey({ kind, name, role, member }: PubsubGrant): string {
  return [kind, name, role, member].join(' ')
}

async function apply(admin: PubsubAdmin, change: ProvisionChange): Promise<void> {
  switch (change.kind) {
    case 'schema':
      return await (change.action === 'create' ? admin.createSchema(change.settings) : admin.commitSchema(change.settings))
    case 'topic':
      if (change.action === 'create') return await admin.createTopic(change.settings)
      return await admin.updateTopic(change.settings, fieldsOf<keyof typeof topicFields>(change))
    case 'subscription':
      return await applySubscription(admin, change)
    case 'grant':
      return await admin.grant(change.grant)
  }
}

async function applySubscription(admin: PubsubAdmin, change: SubscriptionChange): Promise<void> {
  const { settings, action, isFromStart } = change
  const fields = fieldsOf<keyof typeof subscriptionFields>(change)
  if (action === 'create') await admin.createSubscription(isFromStart ? provisional(settings) : settings)
  if (isFromStart) await admin.seekToStart(settings.name)
  if (fields.length > 0) await admin.updateSubscription(settings, fields)
}

function fieldsOf<Field extends string>({ differences }: TopicChange | SubscriptionChange): Field[] {
  return differences.map(({ field }) => field as Field)
}

/** What is changed before the subscriptions, and what after them: a new topic keeps everything until it has those that it is to have. */
function topicChanges(
  wanted: TopicSettings,
  found: TopicSettings | undefined,
  { subscriptions }: DesiredResources,
): { readonly first: TopicChange | undefined; readonly last: TopicChange | undefined } {
  const isUnfinished = found === undefined ? subscriptions.some(({ topic }) => topic === wanted.name) : isProvisional(found)
  const initial = isUnfinished ? provisional(wanted) : wanted
  const changeable = Object.keys(topicFields)
  return { first: compare('topic', initial, found, changeable), last: compare('topic', wanted, initial, changeable) }
}

function subscriptionChange(
  wanted: SubscriptionSettings,
  found: SubscriptionSettings | undefined,
  isTopicUnfinished: boolean,
): SubscriptionChange | undefined {
  const change = compare('subscription', wanted, found, Object.keys(subscriptionFields))
  if (change === undefined) return undefined
  if (found !== undefined) return { ...change, isFromStart: isProvisional(found) }
  const initial = isTopicUnfinished ? provisional(wanted) : wanted
  return { ...change, isFromStart: isTopicUnfinished, differences: differencesOf(wanted, initial) }
}

function compare<Kind extends 'topic' | 'subscription', Settings extends TopicSettings | SubscriptionSettings>(
  kind: Kind,
  wanted: Settings,
  found: Settings | undefined,
  changeable: readonly string[],
): ChangeOf<Kind, Settings> | undefined {
  if (found === undefined) return { kind, name: wanted.name, action: 'create', settings: wanted, differences: [] }
  const differences = differencesOf(wanted, found)
  if (differences.length === 0) return undefined
  const isBlocked = differences.some(({ field }) => !changeable.includes(field))
  return { kind, name: wanted.name, action: isBlocked ? 'blocked' : 'update', settings: wanted, differences }
}

function differencesOf<Settings extends object>(wanted: Settings, found: Settings): Difference[] {
  return (Object.keys(wanted) as (keyof Settings & string)[])
    .filter((field) => !isDeepStrictEqual(wanted[field], found[field]))
    .map((field) => ({ field, from: found[field], to: wanted[field] }))
}

function compareSchema(
  wanted: SchemaSettings,
  found: SchemaSettings | undefined,
): ChangeOf<'schema', SchemaSettings> | undefined {
  const base = { kind: 'schema', name: wanted.name, settings: wanted } as const
  if (found === undefined) return { ...base, action: 'create', differences: [] }
  if (found.type !== wanted.type)
    return { ...base, action: 'blocked', differences: [{ field: 'type', from: found.type, to: wanted.type }] }
  if (isSameDefinition(wanted, found)) return undefined
  return { ...base, action: 'update', differences: [{ field: 'definition', from: found.definition, to: wanted.definition }] }
}

/** Avro by meaning of its JSON, so that white space is no change; Protobuf by its text. */
function isSameDefinition(wanted: SchemaSettings, found: SchemaSettings): boolean {
  if (wanted.type !== 'AVRO') return wanted.definition.trim() === found.definition.trim()
  try {
    return isDeepStrictEqual(JSON.parse(wanted.definition), JSON.parse(found.definition))
  } catch {
    return false
  }
}
