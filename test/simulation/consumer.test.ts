import { consumerMutants } from './consumer-mutants.ts'
import { consumerHistory, consumerWorlds } from './consumer-world.ts'
import { proveMutants, provePromises, proveReplay } from './simulation-suite.ts'

const consumer = {
  name: 'consumer',
  worlds: consumerWorlds,
  play: consumerHistory,
  mutants: consumerMutants,
  runs: 60,
  mutantRuns: 300,
  mutantSeed: 20_250_101,
}

provePromises(consumer)
proveMutants(consumer)
proveReplay(consumer, { shrinking: false })
