import { commandMutants } from './command-mutants.ts'
import { commandHistory, commandWorlds } from './command-world.ts'
import { proveMutants, provePromises, proveReplay } from './simulation-suite.ts'

const command = {
  name: 'command',
  worlds: commandWorlds,
  play: commandHistory,
  mutants: commandMutants,
  runs: 300,
  mutantRuns: 300,
  mutantSeed: 20_250_101,
}

provePromises(command)
proveMutants(command)
proveReplay(command, { shrinking: true })
