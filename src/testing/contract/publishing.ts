/** What a transport promises to those who publish. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { createSigner, createVerifier } from '../../core/event/signing.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import { eventually } from '../kit/eventually.ts'
import type { TransportPromise } from './transport-contract.ts'
import { interleaved, letTimePass, message, probe, publish, publishAll, statuses } from './probe.ts'

export const publishingPromises: readonly TransportPromise[] = [
  {
    name: 'delivers every message it confirmed, and gives each an id of its own',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const outcomes = await publish(
        transport,
        Array.from({ length: 300 }, (_, i) => message(topic, `m${i}`)),
      )
      assert.deepEqual([...new Set(statuses(outcomes))], ['confirmed'])
      assert.equal(new Set(outcomes.map((each) => (each.status === 'confirmed' ? each.messageId : ''))).size, 300)
      const received = await probe(transport, { topic })
      await received.until(300)
    },
  },
  {
    name: 'keeps the order of messages that share a key, with many keys interleaved and many calls',
    needs: 'ordered',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const keys = ['a', 'b', 'c', 'd', 'e']
      const messages = interleaved(topic, keys, 60)
      for (let start = 0; start < messages.length; start += 75) await publishAll(transport, messages.slice(start, start + 75))
      const received = await probe(transport, { topic })
      await received.until(300)
      for (const key of keys)
        assert.deepEqual(
          received.ofKey(key),
          Array.from({ length: 60 }, (_, i) => `${key}${i + 1}`),
        )
    },
  },
  {
    name: 'carries empty bodies, binary bodies, unicode attributes and keys unchanged',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const binary = Uint8Array.from({ length: 256 }, (_, i) => i)
      const sent: readonly OutgoingMessage[] = [
        { topic, orderingKey: undefined, attributes: { name: 'empty' }, body: new Uint8Array(0) },
        { topic, orderingKey: 'ключ/🔑', attributes: { name: 'binary', größe: '大きい 🐘 "quoted" \\ {,}' }, body: binary },
        { topic, orderingKey: undefined, attributes: { name: 'view', blank: '' }, body: binary.subarray(5, 9) },
      ]
      await publishAll(transport, sent)
      const received = await probe(transport, { topic })
      await received.until(3)
      for (const each of sent) {
        const got = received.deliveries.find(
          (delivery) => delivery.message.attributes['name'] === each.attributes['name'],
        )?.message
        assert.deepEqual({ ...got?.attributes }, each.attributes)
        assert.deepEqual(Buffer.from(got?.body ?? []), Buffer.from(each.body))
        assert.equal(got?.orderingKey, each.orderingKey)
        assert.equal(got?.topic, topic)
      }
    },
  },
  {
    name: 'carries what a signature covers, and the signature, so that both are believed where they arrive',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const secret = randomBytes(32)
      const signer = createSigner({ keyId: 'contract', secret })
      const own = { event_id: 'e', event_type: 'Grown', aggregate_type: 'tree', aggregate_id: 'größe/1', version: '1' }
      const sent = [{}, { traceparent: '00-1-2-01' }, { 'the "name"': 'größe \ud83d\udc18', blank: '', headers: 'no JSON' }].map(
        (headers, n): OutgoingMessage => {
          const attributes = { ...headers, ...own, name: `m${n}`, content_type: 'application/json', occurred_at: '2026' }
          return { topic, orderingKey: n === 0 ? undefined : 'größe/1', attributes, body: randomBytes(n * 1_000) }
        },
      )
      await publishAll(
        transport,
        sent.map((each) => signer.sign(each)),
      )
      const received = await probe(transport, { topic })
      await received.until(3)
      const verifier = createVerifier({ keys: [{ keyId: 'contract', secret, topics: [topic] }] })
      for (const { message: got } of received.deliveries) {
        const verdict = verifier.verify(got)
        assert.ok('attributes' in verdict, `${got.attributes['name']}: ${JSON.stringify(verdict)}`)
        const first = sent.find(({ attributes }) => attributes['name'] === got.attributes['name'])
        assert.deepEqual(verdict.attributes, { ...verdict.attributes, ...first?.attributes })
      }
    },
  },
  {
    name: 'takes a message of exactly maxBytes, and rejects one of a byte more as its own fault',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const sized = (bytes: number): OutgoingMessage => ({
        topic,
        orderingKey: undefined,
        attributes: {},
        body: new Uint8Array(bytes),
      })
      assert.deepEqual(statuses(await publish(transport, [sized(transport.maxBytes)])), ['confirmed'])
      assert.deepEqual(statuses(await publish(transport, [sized(transport.maxBytes + 1)])), ['rejected'])
      const received = await probe(transport, { topic })
      await eventually(() =>
        assert.deepEqual(
          received.deliveries.map((each) => each.message.body.byteLength),
          [transport.maxBytes],
        ),
      )
    },
  },
  {
    name: 'a rejected message stops its own key only: those before it and other keys are confirmed, those behind it not sent',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const poison: OutgoingMessage = { ...message(topic, 'poison', 'a'), body: new Uint8Array(transport.maxBytes + 1) }
      const messages = [
        message(topic, 'a1', 'a'),
        message(topic, 'b1', 'b'),
        message(topic, 'a2', 'a'),
        poison,
        message(topic, 'b2', 'b'),
        message(topic, 'a4', 'a'),
      ]
      const outcomes = await publish(transport, messages)
      assert.deepEqual(statuses(outcomes), ['confirmed', 'confirmed', 'confirmed', 'rejected', 'confirmed', 'not-sent'])
      const received = await probe(transport, { topic })
      await received.until(4)
      await letTimePass()
      assert.deepEqual(received.firstNames().toSorted(), ['a1', 'a2', 'b1', 'b2'])
    },
  },
  {
    name: 'a rejected message without a key leaves its neighbours alone',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const poison: OutgoingMessage = { ...message(topic, 'poison'), body: new Uint8Array(transport.maxBytes + 1) }
      const outcomes = await publish(transport, [message(topic, 'm1'), poison, message(topic, 'm2')])
      assert.deepEqual(statuses(outcomes), ['confirmed', 'rejected', 'confirmed'])
    },
  },
  {
    name: 'sends nothing once the sender may not send',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const outcomes = await publish(transport, [message(topic, 'never'), message(topic, 'never2', 'a')], {
        maySend: () => false,
      })
      assert.deepEqual(statuses(outcomes), ['not-sent', 'not-sent'])
      await publishAll(transport, [message(topic, 'after')])
      const received = await probe(transport, { topic })
      await received.until(1)
      await letTimePass()
      assert.deepEqual(received.firstNames(), ['after'])
    },
  },
  {
    name: 'a publish that was aborted before it began sends nothing and ends',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const outcomes = await publish(transport, [message(topic, 'never')], { signal: AbortSignal.abort() })
      assert.deepEqual(statuses(outcomes), ['not-sent'])
    },
  },
  {
    name: 'an outage is told apart from a rejection, an abort ends the call, and afterwards everything goes through',
    needs: 'outage',
    check: async ({ transport, makeTopic, outage }) => {
      const topic = await makeTopic(['one'])
      const end = await (outage as () => Promise<() => Promise<void>>)()
      const messages = [message(topic, 'a1', 'a'), message(topic, 'a2', 'a'), message(topic, 'b1', 'b'), message(topic, 'm1')]
      const outcomes = await publish(transport, messages, { signal: AbortSignal.timeout(500) })
      for (const status of statuses(outcomes))
        assert.ok(status === 'unavailable' || status === 'not-sent', `${status} during an outage`)
      assert.ok(statuses(outcomes).includes('unavailable'))
      await end()
      await publishAll(transport, messages)
      const received = await probe(transport, { topic })
      await received.until(4)
      assert.deepEqual(received.ofKey('a'), ['a1', 'a2'])
    },
  },
]
