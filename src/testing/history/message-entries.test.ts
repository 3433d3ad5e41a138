import { expect, test } from 'vitest'
import { failed } from '../../command/model/outcome.ts'
import { answerOf, deliverEntry, logEntry } from './message-entries.ts'

const attributes = { event_id: 'e1', event_type: 'VideoPublished', aggregate_type: 'video', aggregate_id: 'a b', version: '3' }
const message = { topic: 'video.events', orderingKey: 'a b', attributes }
const event = { event: 'e1', aggregate: 'video a b', version: 3 }

test('a message is told as what it says about its event', () => {
  expect(logEntry(message)).toEqual({ op: 'log', topic: 'video.events', key: 'a b', ...event })
  expect(deliverEntry('catalog', message)).toEqual({ op: 'deliver', consumer: 'catalog', ...event })
})

test('a void is told as one, and so is a stream that promises no order', () => {
  const empty = { ...message, attributes: { ...attributes, event_type: 'waybill.void' } }
  expect(logEntry(empty)).toMatchObject({ isVoid: true })
  const unordered = [{ aggregateType: 'video', ordering: 'version' }] as const
  expect(logEntry({ ...message, orderingKey: undefined }, unordered)).toMatchObject({ isUnordered: true })
  // A key that got lost on the way is no excuse.
  expect(logEntry({ ...message, orderingKey: undefined })).not.toHaveProperty('isUnordered')
})

test('an outcome is told as success, as failure, or as something that nobody knows', () => {
  expect(answerOf({ status: 'executed', response: { n: 1 }, token: undefined, attempts: 1 })).toEqual({
    outcome: 'ok',
    response: '{"n":1}',
  })
  expect(answerOf({ status: 'replayed', response: undefined, token: undefined, from: 'marker' })).toEqual({
    outcome: 'ok',
    isReplay: true,
  })
  expect(answerOf(failed('ALREADY_COMMITTED', ''))).toEqual({ outcome: 'ok', isReplay: true })
  for (const code of ['IN_PROGRESS', 'UNAVAILABLE'] as const) expect(answerOf(failed(code, ''))).toEqual({ outcome: 'info' })
  for (const code of ['KEY_REUSED', 'VERSION_CONFLICT', 'PRECONDITION_FAILED', 'INVALID_INPUT'] as const)
    expect(answerOf(failed(code, ''))).toEqual({ outcome: 'fail' })
})
