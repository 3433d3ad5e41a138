/**
 * How an event's attributes travel: under our own names, or as a CloudEvent in Pub/Sub's binding (`ce-` attributes).
 *
 * Readers get our own names whichever way a message came, so a consumer does not care how its producer writes. What is no
 * part of an event passes through unchanged.
 */

/** Our name → CloudEvents' name. Those that CloudEvents does not define are extensions: lower case, no separators. */
const cloudEventNames: ReadonlyMap<string, string> = new Map([
  ['event_id', 'ce-id'],
  ['event_type', 'ce-type'],
  ['aggregate_id', 'ce-subject'],
  ['occurred_at', 'ce-time'],
  ['content_type', 'content-type'],
  ['aggregate_type', 'ce-aggregatetype'],
  ['version', 'ce-aggregateversion'],
  ['schema_version', 'ce-schemaversion'],
  ['traceparent', 'ce-traceparent'],
])
const ownNames: ReadonlyMap<string, string> = new Map([...cloudEventNames].map(([own, cloud]) => [cloud, own]))

type Attributes = Readonly<Record<string, string>>

/** The attributes of an event as those of a CloudEvent from `source`. */
export function toCloudEvent(attributes: Attributes, source: string): Attributes {
  return { ...rename(attributes, cloudEventNames), 'ce-specversion': '1.0', 'ce-source': source }
}

/** The attributes under our names; those of a message that is no CloudEvent as they are. */
export function fromCloudEvent(attributes: Attributes): Attributes {
  if (attributes['ce-specversion'] === undefined) return attributes
  const { 'ce-specversion': _version, 'ce-source': _source, ...event } = attributes
  return rename(event, ownNames)
}

function rename(attributes: Attributes, names: ReadonlyMap<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(attributes).map(([name, value]) => [names.get(name) ?? name, value]))
}
