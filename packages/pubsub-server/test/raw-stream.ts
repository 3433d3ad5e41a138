/** A StreamingPull as the client's generated stub has it, without the client's own leasing and flow control on top. */
import { eventually } from '../../../src/testing/kit/eventually.ts'
import type { Harness, Received } from './harness.ts'

interface Response {
  readonly receivedMessages?: ReadonlyArray<{
    readonly ackId: string
    readonly deliveryAttempt: number
    readonly message: { readonly data: Uint8Array; readonly attributes: Record<string, string> }
  }>
  readonly acknowledgeConfirmation?: Confirmation | null
  readonly subscriptionProperties?: object | null
}

interface Confirmation {
  readonly ackIds: readonly string[]
  readonly invalidAckIds: readonly string[]
}

export interface RawStream extends Disposable {
  /** All messages received so far, once there are `count`. */
  take(count: number): Promise<readonly Received[]>
  write(request: object): void
  /** The last confirmation of acknowledgements. */
  confirmed(): Confirmation
  properties(): object
  /** Rejects with the status the stream ended with. */
  readonly ended: Promise<void>
}

export function openStream(h: Harness, first: object): RawStream {
  const stream = h.subscriber.streamingPull()
  const received: Received[] = []
  let confirmation: Confirmation = { ackIds: [], invalidAckIds: [] }
  let properties = {}
  stream.on('data', (response: Response) => {
    for (const { ackId, message, deliveryAttempt } of response.receivedMessages ?? []) {
      received.push({
        ackId,
        data: Buffer.from(message.data).toString(),
        attempt: deliveryAttempt,
        attributes: message.attributes,
      })
    }
    confirmation = response.acknowledgeConfirmation ?? confirmation
    properties = response.subscriptionProperties ?? properties
  })
  const ended = new Promise<void>((resolve, reject) => {
    stream.once('error', reject)
    stream.once('end', resolve)
  })
  ended.catch(() => {})
  stream.write({ streamAckDeadlineSeconds: 10, ...first })
  return {
    ended,
    take: (count) => eventually(() => received.length >= count && received),
    write: (request) => void stream.write(request),
    confirmed: () => confirmation,
    properties: () => properties,
    [Symbol.dispose]: () => stream.destroy(),
  }
}
