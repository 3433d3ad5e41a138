/**
 * Command pipelines with one rule broken. The simulation is worth something only if it finds each of them.
 */
import { mutants as variants, type Variant } from '../command/pipeline-variants.ts'
import { believesInCommit, type CommandMutant, type CommandWorld } from './command-world.ts'
import type { NamedMutant } from './simulation-suite.ts'

export const commandMutants: readonly NamedMutant<CommandMutant, CommandWorld>[] = [
  { name: 'has no marker', make: () => variant('no marker'), found: /doubled/ },
  {
    name: 'looks for a marker before it writes one',
    make: () => ({ broken: ['a request has one marker'] }),
    found: /doubled|rejected and done/,
  },
  {
    name: 'writes the marker in another transaction',
    make: () => variant('the marker is written in another transaction'),
    found: /did not happen|no answer/,
  },
  {
    name: 'writes the marker after the work',
    make: () => variant('the marker comes after the work'),
    found: /no answer/,
  },
  { name: 'ignores the fingerprint', make: () => variant('the fingerprint is ignored'), found: /told of another/ },
  {
    name: 'takes an unanswered COMMIT for done',
    make: () => ({ database: believesInCommit }),
    found: /did not happen|different answers|twice/,
  },
  { name: 'does not lock its aggregates', make: () => ({ broken: ['aggregates are locked'] }), found: /wrong balance/ },
]

function variant(name: string): CommandMutant {
  return { pipeline: variants[name] as Variant }
}
