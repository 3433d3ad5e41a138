/** A Pub/Sub server of a cell's own. */
import { randomUUID } from 'node:crypto'
import { seededRandom } from '../../src/core/service/random.ts'
import { Faults } from '../../packages/pubsub-server/src/model/faults.ts'
import { listenGrpc } from '../../packages/pubsub-server/src/grpc-server.ts'
import { memoryJournal } from '../../packages/pubsub-server/src/model/journal.ts'
import type { Log } from '../../src/testing/history/entry.ts'
import { logEntry } from '../../src/testing/history/message-entries.ts'
import { makePubsubTopic } from '../../src/drill/target/pubsub-topic.ts'
import { createPubsubAdmin } from '../../src/transport/pubsub/admin/admin.ts'
import { fastClock } from '../e2e/fast-clock.ts'
import { RecordingBroker } from '../pubsub/recording-broker.ts'
import type { CellBroker } from './broker.ts'
import { clockFactor, topic } from './ledger.ts'

export async function openPubsubBroker(): Promise<CellBroker> {
  const log: Log[] = []
  const faults = new Faults(seededRandom('crash'))
  let isRejecting = false
  const broker = new RecordingBroker({
    clock: fastClock(clockFactor),
    faults,
    journal: memoryJournal,
    rejects: (attributes) => isRejecting && attributes.get('version') === '1' && attributes.get('aggregate_type') === 'account',
    onStored: (attributes) =>
      void log.push({
        ...logEntry({ topic, orderingKey: undefined, attributes: Object.fromEntries(attributes) }),
        source: 'broker',
      }),
  })
  const listener = await listenGrpc(broker, '127.0.0.1:0')
  const address = { emulatorHost: `127.0.0.1:${listener.port}` }
  await makeResources(address.emulatorHost)
  return {
    id: randomUUID(),
    address,
    crashedAddress: address,
    log: async () => log,
    refused: () => faults.fired.refuse,
    refuse: (isRefusing) => {
      faults.set(isRefusing ? { refuse: 1 } : {})
      if (isRefusing) broker.cutStreams()
    },
    reject: (value) => void (isRejecting = value),
    unacked: async () => broker.subscription(`projects/crash/subscriptions/${topic}.ledger`).queue.unackedMessages,
    close: async () => {
      listener.close()
      broker.close()
    },
  }
}

async function makeResources(emulatorHost: string): Promise<void> {
  const admin = createPubsubAdmin({ projectId: 'crash', emulatorHost })
  await makePubsubTopic(admin, topic, ['ledger'])
  await admin.close()
}
