/** What happens between the broker and an effect: crashes, lost acks, slow handlers, duplicates, old versions, poison. */
import { one } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { missingForKafka } from '../../testing/servers/kafka-programs.ts'
import type { Drill } from '../stage/drill.ts'
import { lowestProfileVersion } from '../system/tables.sql.ts'
import { deposit, poisonAmount } from '../system/system.ts'
import type { DrilledProcess } from '../stage/drilled-process.ts'
import { ackDeadlineSeconds } from '../target/pubsub-topic.ts'
import { serversOf } from '../target/target.ts'
import { watchAlert } from '../stage/alerts.ts'

const consumerCrash: Drill = {
  name: 'consumer-crash',
  hazard:
    'A consumer dies in the middle of its work. Acknowledged too early, the message would be lost; its half-done effect must vanish.',
  fault: 'A consumer is killed (SIGKILL) in a handler whose effect is written and not committed.',
  needs: 'processes',
  run: async (stage) => {
    await stage.start('relay')
    const consumer = await stage.start('consumer', { failpoint: { name: 'in handler', action: 'kill', onHit: 3 } })
    await stage.write(10)
    await consumer.killedAt('in handler')
    const before = await stage.effects()
    stage.fired(
      `the consumer was ended by SIGKILL with ${consumer.deliveries.length} messages in hand and ${before} effects committed`,
    )
    await stage.start('consumer')
  },
}

const consumerLease: Drill = {
  name: 'consumer-lease',
  hazard:
    'A killed consumer gives nothing back. The aggregates of what it held stand still until the broker lets another consumer have them.',
  fault:
    'A consumer is killed (SIGKILL) in its first handler, and another runs at once, both with the lease they have by default.',
  needs: 'processes',
  run: async (stage) => {
    await stage.start('relay')
    const killed = await stage.start('consumer', { failpoint: { name: 'in handler', action: 'kill' } })
    await stage.write(10)
    await killed.killedAt('in handler')
    const sinceMs = performance.now()
    const next = await stage.start('consumer')
    const held = new Set(killed.deliveries.map(({ messageId }) => messageId))
    await stage.until(async () => (await stage.effects()) >= 10)
    const seconds = ((performance.now() - sinceMs) / 1_000).toFixed(1)
    const freed = new Set(next.deliveries.flatMap(({ messageId }) => (held.has(messageId) ? [messageId] : [])))
    if (freed.size > 0) stage.fired(`${seconds} s after its end ${freed.size} messages that it had held were applied by another`)
  },
}

const ackLost: Drill = {
  name: 'ack-lost',
  hazard: 'The effect is committed, but the acknowledgement never reaches the broker, which delivers the message again.',
  fault: 'The broker forgets every acknowledgement until messages come again.',
  needs: 'servers',
  run: async (stage) => {
    const { broker } = serversOf(stage.target)
    await stage.start('relay')
    const consumer = await stage.start('consumer')
    const { faults } = broker.server
    const before = faults.fired.dropAcks
    faults.set({ dropAcks: 1 })
    stage.note('the broker forgets acknowledgements', 'fault')
    try {
      await stage.write(20)
      // What comes again is still unacknowledged for the broker, although its effect is there.
      await stage.until(async () => (await stage.effects()) > 0 && faults.fired.dropAcks > before && consumer.redelivered > 0)
    } finally {
      faults.clear()
    }
    const dropped = faults.fired.dropAcks - before
    stage.fired(
      `the broker forgot ${dropped} acknowledgements, and ${consumer.redelivered} or more messages came again after their effect`,
    )
  },
}

const slowHandler: Drill = {
  name: 'handler-beyond-deadline',
  hazard:
    'A handler takes longer than the ack deadline and its process cannot extend it. The broker gives the message to another instance while the first still works on it.',
  fault: `A consumer stands still in a handler (SIGSTOP) for longer than the deadline of ${ackDeadlineSeconds} s; another instance gets its message; then the first goes on and commits.`,
  needs: 'servers',
  run: async (stage) => {
    await stage.start('relay')
    const slow = await stage.start('consumer', { failpoint: { name: 'in handler', action: 'freeze' } })
    await stage.write(5)
    await slow.reached('in handler')
    const heldMs = performance.now()
    stage.note('the handler stands still, its transaction open')
    const other = await stage.start('consumer')
    const held = new Set(slow.deliveries.map(({ messageId }) => messageId))
    await stage.until(() => other.deliveries.some(({ messageId }) => held.has(messageId)))
    const seconds = Math.round((performance.now() - heldMs) / 1_000)
    const twice = other.deliveries.filter(({ messageId }) => held.has(messageId)).length
    slow.child.thaw()
    stage.fired(
      `after ${seconds} s in the handler ${twice} or more of its messages were delivered to a second instance; then the first went on`,
    )
    await stage.write(10)
  },
}

const poison: Drill = {
  name: 'poison-message',
  hazard: 'A message fails however often it is tried. It must not stop the others, must not be lost, and somebody must be told.',
  fault: 'One deposit makes its handler fail every time, among others that do not.',
  needs: 'processes',
  run: async (stage) => {
    await stage.start('relay')
    const consumer = await stage.start('consumer', { metrics: true })
    const alert = await watchAlert({ name: 'WaybillDeadLetters', metricsUrl: consumer.metricsUrl ?? '' })
    stage.defer(() => alert.stop())
    if (await alert.isFiring()) return stage.note('the alert fires already, without cause')
    await stage.write(5)
    await transaction(stage.world.db, (tx) => deposit(stage.world, tx, { account: 'poison-1', amount: poisonAmount }))
    stage.note('a deposit that cannot be digested is committed', 'fault')
    await stage.write(5)
    await stage.until(() => consumer.signals('consumer.dead').length > 0)
    const [dead] = consumer.signals('consumer.dead')
    stage.note(`it is a dead letter after ${dead?.attempts} attempts`)
    await stage.until(() => alert.isFiring())
    stage.fired(`the deposit failed ${dead?.attempts} times and became a dead letter; ${alert.how}`)
  },
}

const staleVersion: Drill = {
  name: 'stale-version',
  hazard:
    'An old state arrives after a newer one, as an event that no inbox has seen. Applied, it would turn the projection back.',
  fault: 'States of version 1 are published again under new ids, when later versions are applied.',
  needs: 'processes',
  run: async (stage) => {
    await stage.start('relay')
    const consumer = await stage.start('consumer')
    await stage.write(15)
    const lowest = async (): Promise<number> => (await one(stage.world.db, lowestProfileVersion(stage.world.tables))).version
    await stage.until(async () => (await lowest()) >= 3 && stage.tap.messages.length >= 30)
    const reached = await lowest()
    const old = stage.tap.messages.filter(
      ({ attributes }) => attributes['aggregate_type'] === 'profile' && attributes['version'] === '1',
    )
    const forged = await stage.tap.forge(old)
    stage.note(`${forged.length} states of version 1 are published under new ids`, 'fault')
    const handed = (): number => consumer.deliveries.filter(({ event }) => forged.includes(event)).length
    await stage.until(() => forged.length > 0 && handed() >= forged.length)
    stage.fired(`${handed()} states of version 1 were delivered when every row was at version ${reached} or later`)
    await stage.write(5)
  },
}

const duplicateStorm: Drill = {
  name: 'duplicate-storm',
  hazard: 'Everything comes again and again: after an outage, a seek, or a relay that publishes twice.',
  fault: 'Every message is published five more times.',
  needs: 'processes',
  run: async (stage) => {
    await stage.start('relay')
    const consumer = await stage.start('consumer')
    await stage.write(20)
    await stage.until(() => stage.tap.messages.length >= 40)
    const once = stage.tap.messages.slice(0, 40)
    let repeated = 0
    for (let round = 0; round < 5; round += 1) repeated += await stage.tap.repeat(once)
    stage.note(`${repeated} duplicates are published`, 'fault')
    const recognised = (): number => consumer.signals('consumer.applied').reduce((sum, { duplicates }) => sum + duplicates, 0)
    await stage.until(() => recognised() >= repeated)
    stage.fired(`the broker took ${repeated} duplicates, and the consumer recognised ${recognised()}`)
  },
}

const rebalance: Drill = {
  name: 'rebalance',
  hazard:
    'Instances of a consumer come and go, and messages in hand change owners. What one has applied and not yet acknowledged, another gets again.',
  fault:
    'Under load a second instance joins, the first is killed, a third joins, and the second stops (Kafka where Java is there, else Pub/Sub).',
  needs: 'processes',
  on: async (target) =>
    target.servers === undefined || missingForKafka() !== undefined || !hasKafkaClient() ? target : await target.servers.kafka(),
  run: async (stage) => {
    await stage.start('relay')
    const isServed = (process: DrilledProcess) => (): boolean => process.deliveries.length > 0
    const first = await stage.start('consumer')
    await stage.writeUntil(isServed(first))
    const second = await stage.start('consumer')
    await stage.writeUntil(isServed(second))
    const { signal } = await first.kill()
    stage.note(`the first instance is gone (${signal})`, 'fault')
    const third = await stage.start('consumer')
    await stage.writeUntil(isServed(third))
    await second.stop()
    stage.note('the second instance has stopped in order', 'fault')
    await stage.write(10)
    const served = [first, second, third].map(({ deliveries }) => deliveries.length)
    const { kind } = stage.target.transport
    if (signal === 'SIGKILL')
      stage.fired(
        `on ${kind}, instances that joined, were killed and left got ${served.join(', ')} messages${movedText([first, second, third])}`,
      )
  },
}

/** Its client is an optional dependency. */
function hasKafkaClient(): boolean {
  try {
    return import.meta.resolve('@platformatic/kafka') !== ''
  } catch {
    return false
  }
}

/** Which partitions were read by more than one instance, on brokers that have them. */
function movedText(instances: readonly DrilledProcess[]): string {
  const readers = instances.map(({ deliveries }) => new Set(deliveries.map(({ partition }) => partition)))
  const all = new Set(readers.flatMap((each) => [...each]))
  const moved = [...all].filter(
    (partition) => partition !== undefined && readers.filter((each) => each.has(partition)).length > 1,
  )
  return moved.length === 0 ? '' : `; ${moved.length} partitions changed hands`
}

export const consumerDrills: readonly Drill[] = [
  consumerCrash,
  consumerLease,
  ackLost,
  slowHandler,
  poison,
  staleVersion,
  duplicateStorm,
  rebalance,
]
