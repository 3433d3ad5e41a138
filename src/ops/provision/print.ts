/**
 * What a service needs in a Pub/Sub project, for those who make it another way: as Terraform, or as gcloud commands.
 *
 * Both make what a plan on an empty project makes, but seek no subscription to the beginning: only the grants, which come after
 * the subscriptions, let somebody publish. Values are quoted for their language; nothing is left to be filled in
 * but what the given options did not say.
 */
import type { SchemaSettings, SubscriptionSettings, TopicSettings } from '../../transport/pubsub/admin/resources.ts'
import { type DesiredResources, isProvisional } from './desired.ts'
import type { PubsubGrant } from '../../transport/pubsub/admin/admin.ts'
import type { Difference, ProvisionChange, ProvisionPlan } from './provision.ts'

/** A plan for people: `+` is made, `~` is changed, `!` stands in the way. */
export function planText(plan: ProvisionPlan): string {
  return withNotes(plan.changes.length === 0 ? ['Nothing to change.'] : plan.changes.flatMap(changeLines), plan)
}

/** Lines for people, and what nobody can see from the project itself. */
export function withNotes(lines: readonly string[], { notes }: Pick<ProvisionPlan, 'notes'>): string {
  return [...lines, ...notes.map((note) => `note: ${note}`)].join('\n')
}

export function terraformText(desired: DesiredResources, projectId: string): string {
  const blocks = [
    ...desired.schemas.map((schema) => schemaBlock(schema, projectId)),
    ...desired.topics.map((topic) => topicBlock(topic, projectId)),
    ...desired.subscriptions.map((subscription) => subscriptionBlock(subscription, desired, projectId)),
    ...desired.grants.map((grant) => grantBlock(grant, desired, projectId)),
  ]
  return [...desired.notes.map((note) => `# ${note}`), ...blocks].join('\n\n')
}

export function gcloudText(desired: DesiredResources, projectId: string): string {
  const project = `--project=${shell(projectId)}`
  const commands = [
    ...desired.schemas.map(({ name, type, definition }) => {
      const kind = type === 'AVRO' ? 'avro' : 'protocol-buffer'
      return `gcloud pubsub schemas create ${shell(name)} --type=${kind} --definition=${shell(definition)} ${project}`
    }),
    ...desired.topics.map(({ name, schema, retentionSeconds }) => {
      const kept = retentionSeconds === 0 ? '' : ` --message-retention-duration=${retentionSeconds}s`
      const enforced =
        schema === undefined ? '' : ` --schema=${shell(schema.name)} --message-encoding=${schema.encoding.toLowerCase()}`
      return `gcloud pubsub topics create ${shell(name)}${kept}${enforced} ${project}`
    }),
    ...desired.subscriptions.map(
      (subscription) => `gcloud pubsub subscriptions create ${subscriptionFlags(subscription).join(' ')} ${project}`,
    ),
    ...desired.grants.map(
      ({ kind, name, role, member }) =>
        `gcloud pubsub ${kind}s add-iam-policy-binding ${shell(name)} --role=${shell(role)} --member=${shell(member)} ${project}`,
    ),
  ]
  return [...desired.notes.map((note) => `# ${note}`), ...commands].join('\n')
}

function changeLines(change: ProvisionChange): string[] {
  if (change.kind === 'grant') {
    const { kind, name, role, member } = change.grant
    return [`+ grant ${role} on ${kind} ${name} to ${member}`]
  }
  const sign = { create: '+', update: '~', blocked: '!' }[change.action]
  return [`${sign} ${change.kind} ${change.name}${remark(change)}`, ...change.differences.map(differenceLine)]
}

function remark(change: Exclude<ProvisionChange, { readonly kind: 'grant' }>): string {
  if (change.action === 'blocked') return ' (cannot be changed in place)'
  if (change.kind === 'subscription' && change.isFromStart) return ' (from the beginning of its topic)'
  const isKeeping = change.kind === 'topic' && change.action === 'create' && isProvisional(change.settings)
  return isKeeping ? ' (keeps everything until its subscriptions are there)' : ''
}

function differenceLine({ field, from, to }: Difference): string {
  return `    ${field}: ${show(from)} -> ${show(to)}`
}

function show(value: unknown): string {
  return value === undefined ? 'none' : typeof value === 'string' ? value : JSON.stringify(value)
}

function schemaBlock({ name, type, definition }: SchemaSettings, projectId: string): string {
  return block('google_pubsub_schema', name, [
    `project = ${hcl(projectId)}`,
    `name = ${hcl(name)}`,
    `type = ${hcl(type)}`,
    `definition = ${hcl(definition)}`,
  ])
}

function topicBlock({ name, schema, retentionSeconds }: TopicSettings, projectId: string): string {
  const lines = [`project = ${hcl(projectId)}`, `name = ${hcl(name)}`]
  if (retentionSeconds > 0) lines.push(`message_retention_duration = ${hcl(`${retentionSeconds}s`)}`)
  if (schema !== undefined) {
    lines.push(
      'schema_settings {',
      `  schema = google_pubsub_schema.${identifier(schema.name)}.id`,
      `  encoding = ${hcl(schema.encoding)}`,
      '}',
    )
  }
  return block('google_pubsub_topic', name, lines)
}

function subscriptionBlock(subscription: SubscriptionSettings, desired: DesiredResources, projectId: string): string {
  const { name, topic, retry, deadLetter, expiresAfterSeconds } = subscription
  return block('google_pubsub_subscription', name, [
    `project = ${hcl(projectId)}`,
    `name = ${hcl(name)}`,
    `topic = ${isOwn(desired, 'topic', topic) ? `google_pubsub_topic.${identifier(topic)}.id` : hcl(`projects/${projectId}/topics/${topic}`)}`,
    `ack_deadline_seconds = ${subscription.ackDeadlineSeconds}`,
    `message_retention_duration = ${hcl(`${subscription.retentionSeconds}s`)}`,
    `retain_acked_messages = ${subscription.isRetainingAcked}`,
    `enable_message_ordering = ${subscription.isOrdered}`,
    `enable_exactly_once_delivery = ${subscription.isExactlyOnce}`,
    'expiration_policy {',
    `  ttl = ${hcl(expiresAfterSeconds === 0 ? '' : `${expiresAfterSeconds}s`)}`,
    '}',
    ...(retry === undefined
      ? []
      : [
          'retry_policy {',
          `  minimum_backoff = ${hcl(`${retry.minSeconds}s`)}`,
          `  maximum_backoff = ${hcl(`${retry.maxSeconds}s`)}`,
          '}',
        ]),
    ...(deadLetter === undefined
      ? []
      : [
          'dead_letter_policy {',
          `  dead_letter_topic = google_pubsub_topic.${identifier(deadLetter.topic)}.id`,
          `  max_delivery_attempts = ${deadLetter.maxAttempts}`,
          '}',
        ]),
  ])
}

/** A topic's subscriptions are there before anybody may publish to it: what is published to a topic without them is lost. */
function grantBlock({ kind, name, role, member }: PubsubGrant, desired: DesiredResources, projectId: string): string {
  const subscriptions = kind === 'topic' ? desired.subscriptions.filter(({ topic }) => topic === name) : []
  const first = subscriptions.map((subscription) => `google_pubsub_subscription.${identifier(subscription.name)}`)
  return block(`google_pubsub_${kind}_iam_member`, [name, role, member].join('_'), [
    `project = ${hcl(projectId)}`,
    `${kind} = ${isOwn(desired, kind, name) ? `google_pubsub_${kind}.${identifier(name)}.name` : hcl(name)}`,
    `role = ${hcl(role)}`,
    `member = ${hcl(member)}`,
    ...(first.length === 0 ? [] : [`depends_on = [${first.join(', ')}]`]),
  ])
}

/** What is made here is referred to, so that Terraform makes it first; other services' topics are only named. */
function isOwn({ topics, subscriptions }: DesiredResources, kind: PubsubGrant['kind'], name: string): boolean {
  return (kind === 'topic' ? topics : subscriptions).some((each) => each.name === name)
}

function block(type: string, name: string, lines: readonly string[]): string {
  return [`resource "${type}" "${identifier(name)}" {`, ...aligned(lines).map((line) => `  ${line}`), '}'].join('\n')
}

/** As `terraform fmt` writes it: the signs of neighbouring attributes stand below each other. */
function aligned(lines: readonly string[]): readonly string[] {
  const attribute = /^( *)(\w+) = (.*)$/
  return lines.map((line, at) => {
    const [, indent = '', key = '', value = ''] = attribute.exec(line) ?? []
    if (key === '') return line
    const isNeighbour = (other: string | undefined): boolean => attribute.exec(other ?? '')?.[1] === indent
    let [from, to] = [at, at]
    while (isNeighbour(lines[from - 1])) from -= 1
    while (isNeighbour(lines[to + 1])) to += 1
    const longest = Math.max(...lines.slice(from, to + 1).map((each) => attribute.exec(each)?.[2]?.length ?? 0))
    return `${indent}${key.padEnd(longest)} = ${value}`
  })
}

function identifier(name: string): string {
  const plain = name.replaceAll(/[^A-Za-z0-9_]/g, '_')
  return /^[A-Za-z_]/.test(plain) ? plain : `_${plain}`
}

function hcl(text: string): string {
  return JSON.stringify(text).replaceAll(/[$%](?=\{)/g, (sign) => sign + sign)
}

function subscriptionFlags(subscription: SubscriptionSettings): string[] {
  const { retry, deadLetter } = subscription
  return [
    shell(subscription.name),
    `--topic=${shell(subscription.topic)}`,
    `--ack-deadline=${subscription.ackDeadlineSeconds}`,
    `--message-retention-duration=${subscription.retentionSeconds}s`,
    ...(subscription.isRetainingAcked ? ['--retain-acked-messages'] : []),
    ...(subscription.isOrdered ? ['--enable-message-ordering'] : []),
    ...(subscription.isExactlyOnce ? ['--enable-exactly-once-delivery'] : []),
    `--expiration-period=${subscription.expiresAfterSeconds === 0 ? 'never' : `${subscription.expiresAfterSeconds}s`}`,
    ...(retry === undefined ? [] : [`--min-retry-delay=${retry.minSeconds}s`, `--max-retry-delay=${retry.maxSeconds}s`]),
    ...(deadLetter === undefined
      ? []
      : [`--dead-letter-topic=${shell(deadLetter.topic)}`, `--max-delivery-attempts=${deadLetter.maxAttempts}`]),
  ]
}

function shell(text: string): string {
  return /^[A-Za-z0-9_./:@=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
