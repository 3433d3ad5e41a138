/** A consumer process: acks each message a little later, and tells its parent of every delivery. It stops when told so. */
import { systemClock, type Clock } from '../../src/core/service/clock.ts'
import { pubsub } from '../../src/transport/pubsub/pubsub.ts'

const [emulatorHost = '', leaseMs = '10000'] = process.argv.slice(2)
let isStopping = false
// A server that stands still for a while is late, and neither silent nor gone. Whoever stops waits for what it has sent, within a lease.
const clock: Clock = {
  ...systemClock,
  sleep: (ms, signal) => systemClock.sleep(isStopping ? Math.max(ms, (Number(leaseMs) * 2) / 3) : ms, signal),
}
const patience = { silentMs: 300_000, callTimeoutMs: 60_000, clock }
const transport = pubsub({ projectId: 'restart', emulatorHost, leaseMs: Number(leaseMs), ...patience })

let seen: [string, number | undefined][] = []
const report = (): void => {
  if (seen.length > 0) process.send?.({ seen })
  seen = []
}
const reporting = setInterval(report, 10)

const receiver = await transport.receive({
  topic: 'video.events',
  consumer: 'catalog',
  maxMessages: 200,
  maxBytes: 10_000_000,
  onError: (error) => process.send?.({ error: error.message }),
  onDelivery: (delivery) => {
    seen.push([delivery.message.attributes['name'] ?? '', delivery.message.deliveryAttempt])
    setTimeout(() => void delivery.ack(), 5)
  },
})
process.send?.({ isReady: true })

process.on('message', () => void stop())

async function stop(): Promise<void> {
  isStopping = true
  await receiver.close()
  await transport.close()
  clearInterval(reporting)
  report()
  process.disconnect()
}
