/**
 * A Kafka of its own, on machines that have Java and Maven: one node, or several that replicate.
 *
 * The first start on a machine fetches Kafka's jars, which takes a minute; later ones take seconds.
 */
import { onFreePorts } from '../process/free-port.ts'
import { createKafkaNode, kafkaId, type KafkaNode, type KafkaPorts } from './kafka-node.ts'
import { kafkaPrograms, type KafkaPrograms } from './kafka-programs.ts'

export interface KafkaCluster {
  /** `host:port` of every node. */
  readonly brokers: readonly string[]
  readonly nodes: readonly KafkaNode[]
  /** The node with this id. */
  node(id: number): KafkaNode
  /** Ends all nodes and removes their files. */
  stop(): Promise<void>
}

export interface KafkaClusterOptions {
  /** @default 1 */
  readonly nodes?: number
}

/** Starts the nodes and returns when all serve. */
export async function startKafka({ nodes: count = 1 }: KafkaClusterOptions = {}): Promise<KafkaCluster> {
  const programs = await kafkaPrograms()
  return await onFreePorts(2 * count, (free) => startNodes(programs, portsOf(free)))
}

/** Two ports for each node. */
function portsOf(free: readonly number[]): ReadonlyMap<number, KafkaPorts> {
  const ports = new Map<number, KafkaPorts>()
  for (let i = 0; i < free.length; i += 2)
    ports.set(ports.size + 1, { broker: free[i] as number, controller: free[i + 1] as number })
  return ports
}

async function startNodes(programs: KafkaPrograms, ports: ReadonlyMap<number, KafkaPorts>): Promise<KafkaCluster> {
  const clusterId = kafkaId()
  const nodes = [...ports.keys()].map((id) => createKafkaNode({ programs, clusterId, id, ports }))
  const stop = async (): Promise<void> => {
    await Promise.all(nodes.map((node) => node.remove()))
  }
  try {
    await Promise.all(nodes.map((node) => node.start()))
  } catch (error) {
    await stop()
    throw error
  }
  return {
    brokers: nodes.map(({ port }) => `127.0.0.1:${port}`),
    nodes,
    node: (id) => nodes.find((node) => node.id === id) as KafkaNode,
    stop,
  }
}
