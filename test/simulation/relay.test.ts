import { relayMutants } from './relay-mutants.ts'
import { relayHistory, relayWorlds } from './relay-world.ts'
import { proveMutants, provePromises, proveReplay } from './simulation-suite.ts'

const relay = {
  name: 'relay',
  worlds: relayWorlds,
  play: relayHistory,
  mutants: relayMutants,
  runs: 100,
  mutantRuns: 400,
  mutantSeed: 11,
}

provePromises(relay)
proveMutants(relay)
proveReplay(relay, { shrinking: false })
