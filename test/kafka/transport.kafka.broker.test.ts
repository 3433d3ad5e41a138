import { describe, test } from 'vitest'
import { startFaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import { transportContract, type TransportHarness } from '../../src/testing/contract/transport-contract.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import { testKafka } from '../setup/test-kafka.ts'

const { brokers, makeTopic } = await testKafka()

async function open(): Promise<TransportHarness> {
  const [host = '', port = ''] = (brokers[0] ?? '').split(':')
  const proxy = await startFaultProxy({ target: { host, port: Number(port) } })
  const transport = kafka({
    brokers: [`${proxy.host}:${proxy.port}`],
    addressOf: () => ({ host: proxy.host, port: proxy.port }),
    minInsyncReplicas: 1,
    heartbeatMs: 50,
    sessionTimeoutMs: 60_000,
  })
  return {
    transport,
    makeTopic: () => makeTopic(),
    outage: () => {
      proxy.refuse()
      proxy.cut()
      return Promise.resolve(() => Promise.resolve(proxy.heal()))
    },
    close: async () => {
      await transport.close()
      await proxy.stop()
    },
  }
}

transportContract('kafka', { describe, test, open })
