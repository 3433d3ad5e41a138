/**
 * `npm run services`: says which services of the tests this machine has, and fetches what can be fetched without its owner.
 *
 * Kafka's jars come from Maven Central into the cache, so that the first test run does not have to wait for them. What has to be
 * installed is named with the command that installs it; nothing is installed here. It ends with 1 if something is missing.
 */
import { errorMessage } from '../src/core/errors.ts'
import { kafkaPrograms, kafkaVersion } from '../src/testing/servers/kafka-programs.ts'
import { services, type Service } from './services.ts'

process.exitCode = await main()

async function main(): Promise<number> {
  const verdicts: string[] = []
  for (const service of services) {
    const problem = service.missing() ?? (await prepare(service))
    verdicts.push(problem === undefined ? `ready    ${service.name}` : `missing  ${service.name}: ${problem}`)
    console.log(verdicts.at(-1))
  }
  return verdicts.some((line) => line.startsWith('missing')) ? 1 : 0
}

/** Fetches what a service needs; says what went wrong. */
async function prepare({ name }: Service): Promise<string | undefined> {
  if (name !== 'java') return undefined
  try {
    console.log(`fetching Kafka ${kafkaVersion}, unless it is in the cache …`)
    await kafkaPrograms()
    return undefined
  } catch (error) {
    return errorMessage(error)
  }
}
