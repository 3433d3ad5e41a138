import { expect, test } from 'vitest'
import { markTx, type QueryResult } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import type { KafkaClient } from '../../transport/kafka/client/kafka-client.ts'
import { kafkaError } from '../../transport/kafka/client/errors.ts'
import { ackAll } from '../../transport/port/ack-all.ts'
import type { Acker, Delivery } from '../../transport/port/transport.ts'
import { createCrashPoints } from './crash-points.ts'
import { eventually } from '../kit/eventually.ts'

test('a member of a group passes the places around its requests, and hears of a rebalance by a heartbeat that failed for it', async () => {
  const passed: string[] = []
  const points = createCrashPoints('consumer', { failpoints: { hit: async (name) => void passed.push(name) } })
  const said = ['NETWORK_EXCEPTION', 'REBALANCE_IN_PROGRESS']
  const client = points.kafkaClient({
    commitOffsets: async () => void passed.push('(the commit)'),
    heartbeat: async () => {
      throw kafkaError(said.shift() ?? '', 'heartbeat')
    },
  } as Partial<KafkaClient> as KafkaClient)
  const member = { group: 'g', memberId: 'm', generation: 1, instanceId: undefined }
  await client.commitOffsets({ member, topic: 't', offsets: new Map() })
  await expect(client.heartbeat(member, 10)).rejects.toMatchObject({ details: { kafka: 'NETWORK_EXCEPTION' } })
  await expect(client.heartbeat(member, 10)).rejects.toMatchObject({ details: { kafka: 'REBALANCE_IN_PROGRESS' } })
  expect(passed).toEqual([
    'consumer: offsets committing',
    '(the commit)',
    'consumer: offset commit sent',
    'consumer: offsets committed',
    'consumer: rebalance heard',
  ])
})

test('the end of a transaction is a place of its own where a certain statement was sent in it', async () => {
  const passed: string[] = []
  const points = createCrashPoints('consumer', { failpoints: { hit: async (name) => void passed.push(name) } })
  const query = async (text: string): Promise<QueryResult> => {
    passed.push(`(${text.split(' ')[0]})`)
    return { rows: [], rowCount: 0 }
  }
  const db = points.database({ query, attempt: (_, work) => work(markTx({ query, native: undefined })) })
  for (const text of ['insert into "waybill"."dead_letter" …', 'select from "waybill"."dead_letter"'])
    await transaction(db, (tx) => tx.query(text))
  const ends = ['committing', 'commit sent', 'burial commit sent', 'committed', 'buried'].map((name) => `consumer: ${name}`)
  const other = ends.filter((name) => !name.includes('buri'))
  expect(passed).toEqual([
    'consumer: begun',
    '(insert)',
    'consumer: letter written',
    ...ends,
    'consumer: begun',
    '(select)',
    ...other,
  ])
})

test('deliveries that are acknowledged together pass the places around an ack once', async () => {
  const passed: string[] = []
  const points = createCrashPoints('consumer', { failpoints: { hit: async (name) => void passed.push(name) } })
  const acker: Acker = {
    ackAll: async (deliveries) => {
      passed.push(`(${deliveries.length} acks)`)
      return deliveries.map(() => 'confirmed')
    },
  }
  const got: Delivery[] = []
  const options = { topic: 't', consumer: 'c', maxMessages: 9, maxBytes: 9, onError: () => {} }
  const receiver = points.receiver({
    receive: async ({ onDelivery }) => {
      for (let i = 0; i < 3; i += 1) onDelivery({ acker } as Delivery)
      return { close: () => Promise.resolve() }
    },
  })
  await receiver.receive({ ...options, onDelivery: (delivery) => void got.push(delivery) })
  await eventually(() => got.length === 3)
  expect(await ackAll(got)).toEqual(['confirmed', 'confirmed', 'confirmed'])
  const received = 'consumer: received'
  expect(passed).toEqual([received, received, received, 'consumer: acking', '(3 acks)', 'consumer: acked'])
})
