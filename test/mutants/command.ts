/** Mutants of commands run inside commands, of pending cache entries, of token headers and of the trace's order. */
import type { SourceMutant } from './source-mutant.ts'

export const commandMutants: readonly SourceMutant[] = [
  {
    mutant: 'runs a command inside the open transaction of another one',
    file: 'src/command/open-command.ts',
    from: 'isOpen && pool === connectionsOf(db)',
    to: 'isOpen && pool === undefined',
    caughtBy: {
      file: 'src/command/open-command.pg.test.ts',
      test: 'is refused at once, with what to use instead, and both commands change nothing',
    },
  },
  {
    mutant: 'takes a transaction that has ended for an open one',
    file: 'src/command/open-command.ts',
    from: 'ended: () => void (own.isOpen = false)',
    to: 'ended: () => void own.isOpen',
    caughtBy: { file: 'src/command/open-command.pg.test.ts', test: 'in what execute left running, once its transaction has committed' },
  },
  {
    mutant: 'takes two databases over one pool for two',
    file: 'src/postgres/database.ts',
    from: 'return db[connections] ?? db',
    to: 'return db',
    caughtBy: { file: 'src/command/open-command.pg.test.ts', test: 'is refused through another adapter over the same pool too' },
  },
]
