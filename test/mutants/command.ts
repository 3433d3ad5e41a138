/** Mutants of commands run inside commands, of pending cache entries, of token headers and of the trace's order. */
import type { SourceMutant } from './source-mutant.ts'

export const commandMutants: readonly SourceMutant[] = [
  {
    mutant: 'runs a command inside the open transaction of another one',
    file: 'src/command/pipeline/open-command.ts',
    from: 'isOpen && pool === connectionsOf(db)',
    to: 'isOpen && pool === undefined',
    caughtBy: {
      file: 'src/command/pipeline/open-command.pg.test.ts',
      test: 'is refused at once, with what to use instead, and both commands change nothing',
    },
  },
  {
    mutant: 'takes a transaction that has ended for an open one',
    file: 'src/command/pipeline/open-command.ts',
    from: 'ended: () => void (own.isOpen = false)',
    to: 'ended: () => void own.isOpen',
    caughtBy: {
      file: 'src/command/pipeline/open-command.pg.test.ts',
      test: 'in what execute left running, once its transaction has committed',
    },
  },
  {
    mutant: 'takes two databases over one pool for two',
    file: 'src/postgres/query/database.ts',
    from: 'return db[connections] ?? db',
    to: 'return db',
    caughtBy: {
      file: 'src/command/pipeline/open-command.pg.test.ts',
      test: 'is refused through another adapter over the same pool too',
    },
  },
  {
    mutant: 'believes a pending entry of a dead process until the entry ends',
    file: 'src/command/pipeline/pending.ts',
    from: 'const believedLockWaits = 3',
    to: 'const believedLockWaits = 3_000_000',
    caughtBy: {
      file: 'src/command/pipeline/pending.pg.test.ts',
      test: 'of a process that died before COMMIT executes the request, and the next one is answered by the cache',
    },
  },
  {
    mutant: 'believes a pending entry that could not be released until the entry ends',
    file: 'src/command/pipeline/run.ts',
    from: 'if (!isBelieved(pipeline, found)) return await tryMarker',
    to: "if (found.token === '') return await tryMarker",
    caughtBy: {
      file: 'src/command/pipeline/pending.pg.test.ts',
      test: 'of a run that was rolled back and could not release it executes the request',
    },
  },
  {
    mutant: 'plans a request again whose marker another run holds',
    file: 'src/command/pipeline/run.ts',
    from: 'if (!isBelieved(pipeline, found)) return await tryMarker(pipeline, asked, toPlan(pipeline, asked))',
    to: 'if (!isBelieved(pipeline, found)) return undefined',
    caughtBy: {
      file: 'src/command/pipeline/pending.pg.test.ts',
      test: 'of a run that holds the marker is told that it is under way, plans nothing, and leaves the entry to its owner',
    },
  },
  {
    mutant: 'plans a request again while another run plans it slowly',
    file: 'src/command/pipeline/pending.ts',
    from: 'await cache.renew(key, pending, clock.nowMs())',
    to: 'if (key === undefined) await cache.renew(key, pending, clock.nowMs())',
    caughtBy: {
      file: 'src/command/pipeline/pending.pg.test.ts',
      test: 'of a run that is still planning is told that it is under way, and plans nothing, however long that takes',
    },
  },
  {
    mutant: 'takes a request with two consistency tokens for one without',
    file: 'src/integrations/command-endpoint.ts',
    from: `  } catch {
    return null
  }`,
    to: `  } catch {
    return undefined
  }`,
    caughtBy: {
      file: 'src/integrations/express.pg.test.ts',
      test: 'refuses two consistency tokens instead of reading by one of them, or by none',
    },
  },
  {
    mutant: 'reads by the first of two consistency tokens',
    file: 'src/projection/token-header.ts',
    from: 'if (more.length === 0 && token',
    to: 'if (more.length >= 0 && token',
    caughtBy: {
      file: 'src/projection/token-header.test.ts',
      test: 'a token that came twice is refused instead of one being chosen',
    },
  },
  {
    mutant: 'orders a trace by its clocks alone',
    file: 'src/ops/trace/timeline.ts',
    from: 'const ready = open.findIndex(({ after }) => !after.some((name) => waiting.has(name)))',
    to: 'const ready = 0',
    caughtBy: {
      file: 'src/ops/trace/timeline.test.ts',
      test: 'where the clock of the consumer is behind that of the owner',
    },
  },
  {
    mutant: 'shows an effect before the publish whose receipt was written later',
    file: 'src/ops/trace/timeline.ts',
    from: 'after: [added, confirmed], entries: deliveryEntries',
    to: 'after: [added, confirmed].slice(0, 1), entries: deliveryEntries',
    caughtBy: {
      file: 'src/ops/trace/trace.pg.test.ts',
      test: 'that a consumer has not seen yet is unseen, one that failed is failing or dead with its reason',
    },
  },
]
