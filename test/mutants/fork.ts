/** Mutants of what notices forks, and of what finds writers without the lock. */
import type { SourceMutant } from './source-mutant.ts'

const forks = 'src/consumer/failure/forks.pg.test.ts'
const noForks = 'src/consumer/failure/no-forks.pg.test.ts'
const guard = 'src/ops/doctor/guarded-tables.pg.test.ts'

export const forkMutants: readonly SourceMutant[] = [
  {
    mutant: 'takes a fork for something old, and says nothing',
    file: 'src/consumer/batch/ordering.ts',
    from: "if (isFork && (turn === 'apply' || turn === 'skip')) turns.forks.push(item)",
    to: 'void isFork',
    caughtBy: { file: forks, test: 'a fork is told of with the consumer, the aggregate and the event' },
  },
  {
    mutant: 'forgets a fork, and tells of it whenever it comes',
    file: 'src/consumer/batch/apply-batch.ts',
    from: '.filter((item) => !forks.includes(item))',
    to: '',
    caughtBy: {
      file: forks,
      test: 'each version that a fail-over gave again is noticed once by a reader of deltas, and none that was given first',
    },
  },
  {
    mutant: 'does not look where rows are written without a handler',
    file: 'src/consumer/tables/claim.sql.ts',
    from: 'from moved m where m.waiting > 0 or m.held_by is not null or m.overlapped is not null or m.jumped_from is not null`',
    to: 'from moved m where m.waiting > 0 or m.held_by is not null or m.jumped_from is not null`',
    caughtBy: {
      file: forks,
      test: 'each version that a fail-over gave again is noticed once by a reader of rows, and none that was given first',
    },
  },
  {
    mutant: 'takes every version below a position for taken',
    file: 'src/consumer/batch/ordering.ts',
    from: 'return event.version >= aggregate.taken.from && event.version <= aggregate.taken.to',
    to: 'return event.version <= aggregate.taken.to',
    caughtBy: { file: noForks, test: 'a delta below a state that closed the gap before it is no fork' },
  },
  {
    mutant: 'takes what a position was moved over for taken',
    file: 'src/consumer/batch/ordering.ts',
    from: 'const isNext = taken?.to === version && to === version + 1n',
    to: 'const isNext = taken !== undefined && to === version + 1n',
    caughtBy: {
      file: noForks,
      test: 'what an operator moved is not taken for seen, nor is what an instance without these columns moved',
    },
  },
  {
    mutant: 'takes the marker of a letter for the letter',
    file: 'src/consumer/batch/ordering.ts',
    from: 'if (!isOwnMarker(item)) aggregate.taken =',
    to: 'aggregate.taken =',
    caughtBy: {
      file: noForks,
      test: 'a letter that was passed before its turn leaves a marker in line, and is no fork when it comes again',
    },
  },
  {
    mutant: 'reports what the inbox has forgotten as a fork',
    file: 'src/consumer/failure/forks.ts',
    from: 'const forks = found.filter(isRemembered)',
    to: 'const forks = found.filter((item) => isRemembered(item) || true)',
    caughtBy: { file: noForks, test: 'an event from a time that the inbox has forgotten is no fork: its row may be gone' },
  },
  {
    mutant: 'lets an aggregate go on behind a forked letter',
    file: 'src/consumer/failure/failure-policy.ts',
    from: "const holds = reason === 'forked' || (isBelieved",
    to: 'const holds = (isBelieved',
    caughtBy: {
      file: forks,
      test: 'with onFork: dead-letter a fork is a letter that holds its aggregate, until an operator decides',
    },
  },
  {
    mutant: 'takes the lock of another transaction for the writer’s',
    file: 'sql/0002_create_aggregates.sql',
    from: 'return found;',
    to: 'return true;',
    caughtBy: { file: guard, test: 'the lock of somebody else is not the writer’s' },
  },
  {
    mutant: 'lets a writer without the lock commit',
    file: 'sql/0002_create_aggregates.sql',
    from: "if tg_argv[2] = 'refuse' then",
    to: "if tg_argv[2] = 'never' then",
    caughtBy: { file: guard, test: 'a writer without the lock is refused by name at its COMMIT, and nothing of it is written' },
  },
  {
    mutant: 'keeps reports of writers without the lock from the doctor',
    file: 'src/ops/doctor/outbox.ts',
    from: '...(await writerFindings(db, outbox)),',
    to: '',
    caughtBy: { file: guard, test: 'a report fails and delays nobody, and the doctor says which program wrote what' },
  },
]
