/** Mutants of the places that commands take before they borrow a connection, and of the bounds of reads with made-up tokens. */
import type { SourceMutant } from './source-mutant.ts'

const unit = 'src/command/pipeline/gate.test.ts'
const pg = 'src/command/pipeline/gate.pg.test.ts'

export const gateMutants: readonly SourceMutant[] = [
  {
    mutant: 'lets any number of commands of an aggregate take a connection',
    file: 'src/command/commands.ts',
    from: 'createCommandGate({ maxPerAggregate, maxPerPrincipal,',
    to: 'createCommandGate({ maxPerAggregate: 10_000, maxPerPrincipal,',
    caughtBy: { file: pg, test: 'while 300 others send a command each for one account, one by one, as a bulk and as a child' },
  },
  {
    mutant: 'lets one principal take the whole pool',
    file: 'src/command/commands.ts',
    from: 'Math.ceil(max / 2)',
    to: 'max',
    caughtBy: { file: pg, test: 'while another one sends 300 commands for 300 accounts at once' },
  },
  {
    mutant: 'counts the aggregate of a command and not those of its children',
    file: 'src/command/pipeline/run.ts',
    from: 'pipeline.gate.begin(asked.passage, aggregatesIn(node))',
    to: 'pipeline.gate.begin(asked.passage, node.aggregate === undefined ? [] : aggregatesIn(node).slice(0, 1))',
    caughtBy: { file: pg, test: 'while 300 others send a command each for one account, one by one, as a bulk and as a child' },
  },
  {
    mutant: 'lets loads take connections without places',
    file: 'src/command/pipeline/plan.ts',
    from: 'const leave = await enter(aggregate === undefined ? [] : [aggregate])',
    to: 'const leave = enter === undefined ? await enter([]) : (): void => undefined',
    caughtBy: { file: pg, test: 'while the loads of another one hang' },
  },
  {
    mutant: 'keeps the place of its principal while it waits for an aggregate',
    file: 'src/command/pipeline/gate.ts',
    from: 'if (held.principal) principals.leave(principal)\n          held.principal = false',
    to: '',
    caughtBy: { file: unit, test: 'makes no command of other aggregates wait, of the same principal either' },
  },
  {
    mutant: 'stands behind its principal’s line again with an aggregate in hand',
    file: 'src/command/pipeline/gate.ts',
    from: "at: 'principal', isAhead: true }",
    to: "at: 'principal', isAhead: false }",
    caughtBy: { file: unit, test: 'gives its next place to a command that then goes before the others of its principal' },
  },
  {
    mutant: 'keeps the places of a command that was refused half-way',
    file: 'src/command/pipeline/gate.ts',
    from: 'leave(passage, keys, held)\n      throw error',
    to: 'throw error',
    caughtBy: { file: unit, test: 'gives its places back: those of the aggregates that it had, too' },
  },
  {
    mutant: 'leaves a caller that gave up in the line',
    file: 'src/command/pipeline/gate.ts',
    from: 'if (place !== -1) line.splice(place, 1)',
    to: 'if (place === -2) line.splice(place, 1)',
    caughtBy: { file: unit, test: 'leaves the line when its caller gives up, as ABORTED, and the next one moves up' },
  },
  {
    mutant: 'does not tell the gate that the client has gone',
    file: 'src/integrations/command-endpoint.ts',
    from: '      waitForWinnerMs,\n      signal,',
    to: '      waitForWinnerMs,\n      signal: signal === undefined ? signal : undefined,',
    caughtBy: {
      file: 'src/integrations/fastify.pg.test.ts',
      test: 'refuses what is beyond the line of a hot account with when to ask again, and frees the place of a client that left',
    },
  },
  {
    mutant: 'gives no sign of life while it waits in line',
    file: 'src/command/pipeline/run.ts',
    from: '(ready) => whileRenewed(pipeline, { key, pending }, ready)',
    to: '(ready) => (pending.token === key ? whileRenewed(pipeline, { key, pending }, ready) : ready)',
    caughtBy: {
      file: pg,
      test: 'takes effect once, and by the cache its repeats elsewhere are told that it is under way, however long it waits',
    },
  },
  {
    mutant: 'looks into the database for a repeat of what this process runs',
    file: 'src/command/pipeline/run.ts',
    from: 'if (gate.isUnderWay(asked.passage)) return inProgress()',
    to: 'if (gate.size < 0) return inProgress()',
    caughtBy: { file: pg, test: 'or runs takes no connection for 300 repeats, which are told that it is under way' },
  },
  {
    mutant: 'lets repeats of what this process runs wait with connections',
    file: 'src/command/pipeline/gate.ts',
    from: 'const requests = new Places(1)',
    to: 'const requests = new Places(10_000)',
    caughtBy: { file: pg, test: 'or runs takes no connection for 300 repeats, which are told that it is under way' },
  },
  {
    mutant: 'waits for the token of another aggregate',
    file: 'src/projection/reads.ts',
    from: 'at.aggregateId !== aggregateId',
    to: "at.aggregateId === ''",
    caughtBy: {
      file: 'src/projection/reads.pg.test.ts',
      test: 'a token of another aggregate of the stream says nothing about the row',
    },
  },
]
