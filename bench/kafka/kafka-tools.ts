/** Kafka's own measuring tools, from the broker's jars: what its Java clients make of the same node, with no database at all. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { kafkaPrograms } from '../../src/testing/servers/kafka-programs.ts'
import { logTopic, toolTopic, type KafkaBench } from './kafka-bench.ts'

const recordBytes = 250

/** Records per second that the tool published, idempotent and with acks of all. */
export async function producerTool({ brokers, count }: KafkaBench): Promise<number> {
  const task = ['--topic', toolTopic, '--num-records', String(count), '--record-size', String(recordBytes), '--throughput', '-1']
  const settings = ['--producer-props', `bootstrap.servers=${brokers.join()}`, 'acks=all']
  const said = await runTool('org.apache.kafka.tools.ProducerPerformance', [...task, ...settings])
  const [, last] = [...said.matchAll(/records sent, ([\d.]+) records\/sec/g)].at(-1) ?? []
  return Number(last)
}

/** Records per second that the tool fetched of the facts that the sink reads, after it had joined its group. */
export async function consumerTool({ brokers, count }: KafkaBench): Promise<number> {
  const task = ['--bootstrap-server', brokers.join(), '--topic', logTopic, '--messages', String(count)]
  const said = await runTool('org.apache.kafka.tools.ConsumerPerformance', task)
  const [names, figures] = said
    .split('\n')
    .filter((line) => line.includes(', '))
    .slice(-2)
    .map((line) => line.split(', '))
  return Number(figures?.[names?.indexOf('fetch.nMsg.sec') ?? -1])
}

async function runTool(name: string, args: readonly string[]): Promise<string> {
  const { java, classPath } = await kafkaPrograms()
  const flags = ['-Xmx256m', '-XX:+UseSerialGC', '-Dorg.slf4j.simpleLogger.defaultLogLevel=error']
  const { stdout } = await promisify(execFile)(java, [...flags, '-cp', classPath, name, ...args])
  return stdout
}
