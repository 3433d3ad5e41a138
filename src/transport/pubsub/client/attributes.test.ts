import fc from 'fast-check'
import { expect, test } from 'vitest'
import { fromCloudEvent, toCloudEvent } from './attributes.ts'

const event = {
  event_id: '01890a5d-ac96-774b-bcce-b302099a8057',
  event_type: 'VideoPublished',
  aggregate_type: 'video',
  aggregate_id: 'v-1',
  version: '7',
  schema_version: '2',
  occurred_at: '2025-01-01T00:00:00.000Z',
  content_type: 'application/json',
  traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
}

test('an event is written as a CloudEvent in the binding of Pub/Sub', () => {
  expect(toCloudEvent({ ...event, tenant: 'blue' }, '/shop')).toEqual({
    'ce-specversion': '1.0',
    'ce-id': event.event_id,
    'ce-type': 'VideoPublished',
    'ce-source': '/shop',
    'ce-subject': 'v-1',
    'ce-time': '2025-01-01T00:00:00.000Z',
    'ce-aggregatetype': 'video',
    'ce-aggregateversion': '7',
    'ce-schemaversion': '2',
    'ce-traceparent': event.traceparent,
    'content-type': 'application/json',
    tenant: 'blue',
  })
})

test('whatever is written as a CloudEvent is read under our names', () => {
  const name = fc.oneof(
    fc.constantFrom(...Object.keys(event)),
    fc.string({ minLength: 1 }).filter((text) => !/^(ce-|content-type$|__proto__$)/.test(text)),
  )
  fc.assert(
    fc.property(fc.dictionary(name, fc.string()), (attributes) => {
      expect(fromCloudEvent(toCloudEvent(attributes, '/shop'))).toEqual({ ...attributes })
    }),
  )
})

test('a message that is no CloudEvent is left as it is', () => {
  expect(fromCloudEvent(event)).toBe(event)
})
