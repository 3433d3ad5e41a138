import { expect, test } from 'vitest'
import { voidEventType } from '../../core/event/event.ts'
import type { DispatchRow } from '../tables/dispatch.sql.ts'
import { toMessage } from './message.ts'

const row: DispatchRow & { readonly topic: string } = {
  lane: 5,
  seq: '1',
  key: '1',
  event_id: 'e1',
  state: 0,
  publish_attempts: 0,
  void: false,
  blocked: false,
  wait_ms: 0,
  topic: 'video.events',
  aggregate_type: 'video',
  aggregate_id: 'v1',
  version: '3',
  event_type: 'VideoPublished',
  schema_version: 2,
  content_type: 'application/json',
  payload: new TextEncoder().encode('{}'),
  headers: '{"traceparent":"00-abc"}',
  occurred_at: '2025-01-01T00:00:00.000000Z',
}
const promised = {
  event_id: 'e1',
  event_type: 'VideoPublished',
  aggregate_type: 'video',
  aggregate_id: 'v1',
  version: '3',
  schema_version: '2',
  occurred_at: '2025-01-01T00:00:00.000000Z',
  content_type: 'application/json',
}

test('headers travel as attributes and cannot replace those that are promised', () => {
  expect(toMessage(row, 'aggregate').attributes).toEqual({ ...promised, traceparent: '00-abc' })
  const forged = JSON.stringify(Object.fromEntries(Object.keys(promised).map((name) => [name, 'forged'])))
  expect(toMessage({ ...row, headers: forged }, 'aggregate').attributes).toEqual(promised)
})

test('headers of any JSON become texts: nobody stops a relay by what he writes there', () => {
  const attributes = (headers: string): Readonly<Record<string, string>> => toMessage({ ...row, headers }, 'aggregate').attributes
  expect(attributes('{"n":3,"deep":{"a":[1]},"none":null}')).toEqual({ ...promised, n: '3', deep: '{"a":[1]}', none: 'null' })
  const digits = ['9007199254740993', '1.10', '-0.0', '1e400', '[{"a":0.1234567890123456789}]']
  for (const each of digits) expect(attributes(`{"n":${each},"t":"1.10"}`)).toEqual({ ...promised, n: each, t: '1.10' })
  for (const headers of ['[1,2]', '"text"', 'null', '7']) expect(attributes(headers)).toEqual({ ...promised, headers })
})

test('the ordering key is the aggregate, the lane or none; one that brokers would refuse is replaced by its hash', () => {
  const key = (ordering: 'aggregate' | 'lane' | 'version', id = 'v1'): string | undefined =>
    toMessage({ ...row, aggregate_id: id }, ordering).orderingKey
  expect([key('aggregate'), key('lane'), key('version')]).toEqual(['v1', 'lane-5', undefined])
  expect(key('aggregate', 'x'.repeat(1024))).toBe('x'.repeat(1024))
  expect(key('aggregate', 'x'.repeat(1025))).toMatch(/^[0-9a-f]{64}$/)
  expect(key('aggregate', 'ü'.repeat(512))).toBe('ü'.repeat(512))
  expect(key('aggregate', 'ü'.repeat(513))).toMatch(/^[0-9a-f]{64}$/)
  expect(key('aggregate', 'x'.repeat(1025))).not.toBe(key('aggregate', 'x'.repeat(1026)))
})

test('a skipped event leaves an empty marker with its id and version', () => {
  const marker = toMessage({ ...row, void: true }, 'aggregate')
  expect(marker.attributes).toMatchObject({ event_id: 'e1', version: '3', event_type: voidEventType })
  expect(marker.body).toHaveLength(0)
  expect(marker.orderingKey).toBe('v1')
})
