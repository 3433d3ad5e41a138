/**
 * One node of Kafka, broker and controller in one, with a folder of its own on the loopback interface.
 *
 * It can be killed, frozen, stopped in order and started again on the same port with the same data. A parent that dies takes it
 * with it, and its folder.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { WaybillError } from '../../core/errors.ts'
import { temporaryFolder } from '../process/cache-folder.ts'
import { eventually } from '../kit/eventually.ts'
import type { KafkaPrograms } from './kafka-programs.ts'
import { startWatchdog } from '../process/watchdog.ts'

export interface KafkaNodeOptions {
  readonly programs: KafkaPrograms
  readonly clusterId: string
  readonly id: number
  /** The ports of all nodes, by id. */
  readonly ports: ReadonlyMap<number, KafkaPorts>
}

export interface KafkaPorts {
  readonly broker: number
  readonly controller: number
}

export interface KafkaNode {
  readonly id: number
  readonly port: number
  /** Starts it, the first time or again, and returns when it serves. */
  start(): Promise<void>
  /** Ends it without a word. */
  kill(): Promise<void>
  /** Ends it in order: its partitions are led elsewhere before it goes. */
  stop(): Promise<void>
  freeze(): void
  thaw(): void
  /** Ends it and removes its files. */
  remove(): Promise<void>
}

/** What the log says when the node serves. */
const readyText = 'Kafka Server started'
const host = '127.0.0.1'

export function createKafkaNode(options: KafkaNodeOptions): KafkaNode {
  const { programs, id, ports } = options
  const folder = temporaryFolder(`waybill-kafka-${id}-`)
  const unpacked = mkdtempSync(join(tmpdir(), `waybill-kafka-unpacked-${id}-`))
  const logFile = join(folder, 'service.log')
  const port = (ports.get(id) as KafkaPorts).broker
  writeSettings(folder, options)
  const watchdog = startWatchdog({ folders: [folder, unpacked], signal: 'KILL' })
  let child: ChildProcess | undefined
  const isUp = (): boolean => child?.pid !== undefined && child.exitCode === null && child.signalCode === null
  const end = async (signal: 'SIGKILL' | 'SIGTERM'): Promise<void> => {
    if (child === undefined || !isUp()) return
    const process = child
    const exited = new Promise<void>((done) => process.once('exit', () => done()))
    process.ref()
    process.kill('SIGCONT')
    process.kill(signal)
    await exited
  }
  return {
    id,
    port,
    start: async () => {
      if (isUp()) return
      const log = openSync(logFile, 'w')
      const started = spawn(programs.java, javaArguments(programs, { folder, unpacked }), {
        cwd: folder,
        detached: true,
        stdio: ['ignore', log, log],
      })
      closeSync(log)
      started.unref()
      child = started
      watchdog.watch(started)
      const readLog = (): string => readFileSync(logFile, 'utf8')
      await eventually(() => !isUp() || readLog().includes(readyText), { intervalMs: 25, timeoutMs: 90_000 }).catch(() =>
        end('SIGKILL'),
      )
      if (isUp()) return
      throw new WaybillError('UNAVAILABLE', `Kafka node ${id} did not start. The end of its log:\n${readLog().slice(-3_000)}`)
    },
    kill: () => end('SIGKILL'),
    stop: () => end('SIGTERM'),
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
    remove: async () => {
      await end('SIGKILL')
      watchdog.dismiss()
      for (const each of [folder, unpacked]) await rm(each, { recursive: true, force: true })
    },
  }
}

/** An id as Kafka writes them: 16 bytes in URL-safe base 64. */
export function kafkaId(): string {
  // A leading dash would be taken for an option.
  return randomBytes(16).toString('base64url').replace(/^-/, 'A')
}

/** A small heap, and a compiler that is quick rather than thorough: these nodes live for seconds. */
const javaFlags = [
  '-Xmx384m',
  '-Xms128m',
  '-XX:+UseSerialGC',
  '-XX:TieredStopAtLevel=1',
  '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
  '-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info',
  '-Dorg.slf4j.simpleLogger.showDateTime=true',
]

interface KafkaFolders {
  readonly folder: string
  /** For the libraries that it unpacks: where the other files are, in memory, they may not be allowed to run. */
  readonly unpacked: string
}

function javaArguments({ classPath }: KafkaPrograms, { folder, unpacked }: KafkaFolders): string[] {
  return [...javaFlags, `-Djava.io.tmpdir=${unpacked}`, '-cp', classPath, 'kafka.Kafka', join(folder, 'server.properties')]
}

function writeSettings(folder: string, { clusterId, id, ports }: KafkaNodeOptions): void {
  const own = ports.get(id) as KafkaPorts
  const copies = Math.min(3, ports.size)
  const data = join(folder, 'data')
  mkdirSync(data)
  writeFileSync(
    join(data, 'meta.properties'),
    lines({ version: 1, 'cluster.id': clusterId, 'node.id': id, 'directory.id': kafkaId() }),
  )
  const settings = {
    'process.roles': 'broker,controller',
    'node.id': id,
    'controller.quorum.voters': [...ports].map(([node, { controller }]) => `${node}@${host}:${controller}`).join(','),
    listeners: `PLAINTEXT://${host}:${own.broker},CONTROLLER://${host}:${own.controller}`,
    'advertised.listeners': `PLAINTEXT://${host}:${own.broker}`,
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': 'PLAINTEXT',
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'log.dirs': data,
    'auto.create.topics.enable': false,
    'default.replication.factor': copies,
    'min.insync.replicas': Math.max(1, copies - 1),
    'offsets.topic.replication.factor': copies,
    'offsets.topic.num.partitions': 3,
    'transaction.state.log.replication.factor': copies,
    'transaction.state.log.min.isr': 1,
    'transaction.state.log.num.partitions': 3,
    'share.coordinator.state.topic.replication.factor': copies,
    'share.coordinator.state.topic.min.isr': 1,
    'group.initial.rebalance.delay.ms': 0,
    'group.min.session.timeout.ms': 300,
    'num.network.threads': 2,
    'num.io.threads': 2,
    'background.threads': 2,
    'log.cleaner.dedupe.buffer.size': 4_194_304,
    // Whoever waits for a compaction does not wait long.
    'log.cleaner.backoff.ms': 500,
    // A node that is gone is noticed soon.
    'broker.heartbeat.interval.ms': 500,
    'broker.session.timeout.ms': 3_000,
    'replica.lag.time.max.ms': 5_000,
    'controlled.shutdown.enable': ports.size > 1,
  }
  writeFileSync(join(folder, 'server.properties'), lines(settings))
}

function lines(settings: Readonly<Record<string, string | number | boolean>>): string {
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('')
}
