import { expect, test } from 'vitest'
import { publishRuns, type RunSender } from './publish-runs.ts'
import type { OutgoingMessage, PublishOptions } from './transport.ts'

const always: PublishOptions = { signal: new AbortController().signal, maySend: () => true }

function message(name: string, orderingKey?: string): OutgoingMessage {
  return { topic: 't', orderingKey, attributes: { name }, body: new Uint8Array(0) }
}

/** A broker whose requests end when the test says so. */
function slowBroker(options: Partial<RunSender> = {}) {
  const requests: { readonly names: string; readonly confirm: () => void }[] = []
  const sender: RunSender = {
    send: (messages) =>
      new Promise((resolve) => {
        const names = messages.map(({ attributes }) => attributes['name']).join(' ')
        requests.push({ names, confirm: () => resolve(messages.map((_, i) => `${names}/${i}`)) })
      }),
    isRejection: () => false,
    maxRequestMessages: 2,
    maxRequestBytes: 1_000,
    maxConcurrentRequests: 3,
    ...options,
  }
  return { sender, requests }
}

test('requests of messages without a key run side by side, up to the limit', async () => {
  const { sender, requests } = slowBroker()
  const publishing = publishRuns(
    sender,
    ['1', '2', '3', '4', '5', '6', '7'].map((name) => message(name)),
    always,
  )
  expect(requests.map(({ names }) => names)).toEqual(['1 2', '3 4', '5 6'])
  for (const { confirm } of requests) confirm()
  await expect.poll(() => requests.length).toBe(4)
  requests[3]?.confirm()
  expect((await publishing).map(({ status }) => status)).toEqual(Array.from({ length: 7 }, () => 'confirmed'))
})

test('a key has one request under way, while others run', async () => {
  const { sender, requests } = slowBroker()
  const publishing = publishRuns(sender, [message('a1', 'a'), message('a2', 'a'), message('a3', 'a'), message('b1', 'b')], always)
  expect(requests.map(({ names }) => names)).toEqual(['a1 a2', 'b1'])
  requests[1]?.confirm()
  requests[0]?.confirm()
  await expect.poll(() => requests.length).toBe(3)
  requests[2]?.confirm()
  expect((await publishing).map(({ status }) => status)).toEqual(['confirmed', 'confirmed', 'confirmed', 'confirmed'])
})

test('an empty key is a key, and no relation of messages without one', async () => {
  const { sender, requests } = slowBroker()
  const publishing = publishRuns(sender, [message('1', ''), message('2')], always)
  expect(requests.map(({ names }) => names)).toEqual(['1', '2'])
  for (const { confirm } of requests) confirm()
  await publishing
})

test('a topic that is missing is told from an outage', async () => {
  const send: RunSender['send'] = ([first]) => Promise.reject(new Error(first?.orderingKey === 'a' ? 'no such topic' : 'gone'))
  const { sender } = slowBroker({ send, isUnroutable: (error) => (error as Error).message === 'no such topic' })
  const outcomes = await publishRuns(sender, [message('1', 'a'), message('2', 'b')], always)
  expect(outcomes.map(({ status }) => status)).toEqual(['unroutable', 'unavailable'])
})

test('an outage stops the key where it was, and permission is asked before every request', async () => {
  let sent = 0
  const { sender } = slowBroker({
    maxConcurrentRequests: 1,
    send: (messages) => {
      sent += 1
      return sent === 2 ? Promise.reject(new Error('gone')) : Promise.resolve(messages.map(() => 'id'))
    },
  })
  const messages = Array.from({ length: 6 }, (_, i) => message(`a${i}`, 'a'))
  expect((await publishRuns(sender, messages, always)).map(({ status }) => status)).toEqual([
    'confirmed',
    'confirmed',
    'unavailable',
    'unavailable',
    'not-sent',
    'not-sent',
  ])
  let asked = 0
  const outcomes = await publishRuns(sender, messages, { ...always, maySend: () => ++asked < 3 })
  expect(outcomes.map(({ status }) => status)).toEqual([
    'confirmed',
    'confirmed',
    'confirmed',
    'confirmed',
    'not-sent',
    'not-sent',
  ])
})

test('a rejected request is halved until the culprit stands alone', async () => {
  const requests: string[] = []
  const { sender } = slowBroker({
    maxRequestMessages: 8,
    isRejection: () => true,
    send: (messages) => {
      const names = messages.map(({ attributes }) => attributes['name'])
      requests.push(names.join(''))
      return names.includes('f') ? Promise.reject(new Error('bad')) : Promise.resolve(names.map(() => 'id'))
    },
  })
  const outcomes = await publishRuns(
    sender,
    'abcdefgh'.split('').map((name) => message(name, 'k')),
    always,
  )
  expect(outcomes.map(({ status }) => status)).toEqual([
    ...Array.from({ length: 5 }, () => 'confirmed'),
    'rejected',
    'not-sent',
    'not-sent',
  ])
  expect(requests).toEqual(['abcdefgh', 'abcd', 'efgh', 'ef', 'e', 'f'])
})
