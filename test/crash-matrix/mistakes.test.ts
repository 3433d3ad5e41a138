import { expect, test } from 'vitest'
import type { AckOutcome, Delivery, IncomingMessage, Receiver, ReceiveOptions } from '../../src/transport/port/transport.ts'
import { mistakenReceiver } from './mistakes.ts'

test('what a mistaken consumer acknowledges first it has only once the broker does not bring it again', async () => {
  const heard: string[] = []
  const isForgotten = Promise.withResolvers<void>()
  let deliver: ReceiveOptions['onDelivery'] = () => {}
  const receive = async (options: ReceiveOptions): Promise<Receiver> => {
    deliver = options.onDelivery
    return { close: () => Promise.resolve() }
  }
  const mistaken = mistakenReceiver({ receive }, 'acknowledges first', ({ messageId }) =>
    messageId === 'late' ? isForgotten.promise : Promise.reject(new Error('It comes again.')),
  )
  const onDelivery = ({ message }: Delivery): void => void heard.push(message.messageId)
  await mistaken.receive({ topic: 't', consumer: 'c', maxMessages: 9, maxBytes: 9, onDelivery, onError: () => {} })
  deliver(delivery('late', 'unconfirmed'))
  deliver(delivery('again', 'unconfirmed'))
  deliver(delivery('lost', 'lost'))
  deliver(delivery('done', 'confirmed'))
  await expect.poll(() => heard).toEqual(['done'])
  isForgotten.resolve()
  await expect.poll(() => heard).toEqual(['done', 'late'])
})

function delivery(messageId: string, outcome: AckOutcome): Delivery {
  const message = { messageId, attributes: { event_id: messageId } } as Partial<IncomingMessage> as IncomingMessage
  const lost = new AbortController().signal
  return { message, lost, ack: () => Promise.resolve(outcome), nack: () => Promise.resolve() }
}
