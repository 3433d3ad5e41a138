/** Asks Kafka's own Java code for the partitions of keys. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { kafkaPrograms } from '../../src/testing/servers/kafka-programs.ts'
import type { GoldenKey } from './golden-keys.ts'

export async function javaPartitions(keys: readonly GoldenKey[]): Promise<readonly number[]> {
  const { java, classPath } = await kafkaPrograms()
  const source = fileURLToPath(new URL('Partitions.java', import.meta.url))
  const input = keys.map(({ key, partitions }) => `${partitions} ${Buffer.from(key).toString('hex')}\n`).join('')
  const output = await new Promise<string>((done, fail) => {
    const child = execFile(java, ['-XX:TieredStopAtLevel=1', '-cp', classPath, source], (error, stdout) => {
      if (error === null) done(stdout)
      else fail(new Error('Java failed', { cause: error }))
    })
    child.stdin?.end(input)
  })
  return output.trim().split('\n').map(Number)
}
