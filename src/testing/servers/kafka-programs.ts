/**
 * Kafka's own programs, from Maven Central: the broker, its tools and its Java client, as jars in the cache of this account.
 *
 * They are resolved once per machine by Maven, which checks them, and are complete when they are there at all.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { WaybillError } from '../../core/errors.ts'
import { cached, cacheFolder } from '../process/cache-folder.ts'
import { findProgram } from '../process/find-program.ts'

/** The version of Kafka that tests run against. */
export const kafkaVersion = '4.1.1'

export interface KafkaPrograms {
  readonly java: string
  /** Every jar, as Java takes it. */
  readonly classPath: string
}

/** What this machine lacks, and how to get it; undefined where all is there. Kafka needs Java 17 or later. */
export function missingForKafka(): string | undefined {
  for (const [program, packages] of [
    ['java', 'default-jdk-headless'],
    ['mvn', 'maven'],
  ] as const) {
    if (findProgram(program) === undefined) return `${program} is not on this machine; apt-get install ${packages}`
  }
  return undefined
}

/** Finds the programs, and resolves them first where they are not in the cache. */
export async function kafkaPrograms(): Promise<KafkaPrograms> {
  const missing = missingForKafka()
  if (missing !== undefined) throw new WaybillError('NOT_FOUND', `Kafka needs Java and Maven: ${missing}.`)
  const folder = await cached(cacheFolder(), `kafka-${kafkaVersion}`, resolveJars)
  return { java: findProgram('java') ?? 'java', classPath: join(folder, '*') }
}

async function resolveJars(folder: string): Promise<void> {
  const pom = join(folder, 'pom.xml')
  writeFileSync(pom, pomText)
  const goal = 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies'
  const args = ['-q', '-B', '-f', pom, goal, `-DoutputDirectory=${folder}`, '-DincludeScope=runtime']
  const maven = spawn(findProgram('mvn') ?? 'mvn', args, { stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [maven.stdout, maven.stderr]) stream.setEncoding('utf8').on('data', (text: string) => (output += text))
  const [code] = (await once(maven, 'close')) as [number | null]
  rmSync(pom)
  if (code !== 0)
    throw new WaybillError(
      'UNAVAILABLE',
      `Maven could not resolve Kafka ${kafkaVersion}. The end of its output:\n${output.slice(-2_000)}`,
    )
}

function dependency(groupId: string, artifactId: string, version: string): string {
  return `<dependency><groupId>${groupId}</groupId><artifactId>${artifactId}</artifactId><version>${version}</version></dependency>`
}

const pomText = `<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>waybill</groupId><artifactId>kafka-programs</artifactId><version>1</version>
<dependencies>
${dependency('org.apache.kafka', 'kafka_2.13', kafkaVersion)}
${dependency('org.apache.kafka', 'kafka-tools', kafkaVersion)}
${dependency('org.slf4j', 'slf4j-simple', '1.7.36')}
</dependencies>
</project>
`
