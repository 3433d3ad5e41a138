/** Mistakes around a handler's deadline, its settings, and what its attempts leave behind. */
import type { SourceMutant } from './source-mutant.ts'

const deadline = 'src/consumer/batch/handler-deadline.pg.test.ts'
const settings = 'src/consumer/batch/handler-settings.pg.test.ts'
const fate = 'src/consumer/event-fate.pg.test.ts'
const inHalf = 'in direct mode four events that hang never take more than half of four places again'

export const deadlineMutants: readonly SourceMutant[] = [
  {
    mutant: 'waits for a statement that nobody waits for any more',
    file: 'src/postgres/transaction/tx-scope.ts',
    from: 'select pg_cancel_backend(a.pid) from',
    to: 'select a.pid from',
    caughtBy: {
      file: 'src/postgres/adapters/from-postgres-js.pg.test.ts',
      test: 'what nobody waits for any more is ended by the server, and the connection serves the next one',
    },
  },
  {
    mutant: 'waits for the ROLLBACK behind a statement that it could not interrupt',
    file: 'src/postgres/transaction/tx-scope.ts',
    from: '=== true ? answerMs : 0',
    to: '=== true ? answerMs : 600_000',
    caughtBy: {
      file: 'src/postgres/adapters/given-up.pg.test.ts',
      test: 'fromPg closes the connection of a statement that is to be ended, where no other is to be had to say so',
    },
  },
  {
    mutant: 'lets a statement of a handler run beyond the handler’s time',
    file: 'src/consumer/batch/apply-batch.ts',
    from: 'if (isShorter) await execute(batch.tx, limitStatements(settings.handlerTimeoutMs))',
    to: '',
    caughtBy: {
      file: deadline,
      test: 'while a handler may take less time than a statement, so may its statements, and only its',
    },
  },
  {
    mutant: 'tries a handler that ran out of time again before its neighbours',
    file: 'src/consumer/batch/split.ts',
    from: "  if (isOutOfTime(error)) return { kind: 'settle', before, item, after }\n",
    to: '',
    caughtBy: {
      file: deadline,
      test: 'a handler that hangs in the process is given up at its deadline, and its neighbours go on without it',
    },
  },
  {
    mutant: 'gives suspects every place of a consumer',
    file: 'src/consumer/model/places.ts',
    from: 'Math.max(1, Math.floor(concurrency / 2))',
    to: 'concurrency',
    caughtBy: { file: deadline, test: inHalf },
  },
  {
    mutant: 'forgets who ran out of time',
    file: 'src/consumer/batch/process-batch.ts',
    from: '  if (isOutOfTime(failure.error)) deps.events.timedOut(failure.item)\n',
    to: '',
    caughtBy: { file: deadline, test: inHalf },
  },
  {
    mutant: 'lets one suspect keep all lanes of its batch',
    file: 'src/consumer/stored/process.ts',
    from: 'if (atWork >= placesOfSuspects(concurrency))',
    to: 'if (false)',
    caughtBy: { file: deadline, test: 'in stored mode four events that hang never take more than half of four places again' },
  },
  {
    mutant: 'leaves a handler’s settings to the next one',
    file: 'src/consumer/batch/handler-settings.ts',
    from: '  await execute(tx, putBackSettings(kept.settings))\n',
    to: '',
    caughtBy: {
      file: settings,
      test: 'what a handler sets is put back before the next one, and before what is written for all of them',
    },
  },
  {
    mutant: 'leaves a handler’s role to the next one',
    file: 'src/consumer/batch/handler-settings.ts',
    from: `  if (changed.has('role')) await execute(tx, putBackRole(kept.role))\n`,
    to: '',
    caughtBy: {
      file: settings,
      test: 'what a handler sets is put back before the next one, and before what is written for all of them',
    },
  },
  {
    mutant: 'sends what a session would keep',
    file: 'src/consumer/batch/handler-settings.ts',
    from: 'return found.refused === undefined ? undefined : refused(found.refused)',
    to: 'return undefined',
    caughtBy: { file: settings, test: 'is refused before it is sent, and the neighbour goes on' },
  },
  {
    mutant: 'counts a failure of an event that another instance applies',
    file: 'src/consumer/failure/settle.ts',
    from: '    if (!isFresh) return undefined\n',
    to: '',
    caughtBy: { file: fate, test: 'a failure is not counted against an event that another instance has applied, or is applying' },
  },
  {
    mutant: 'counts a failure of an event whose offset another instance moved over',
    file: 'src/consumer/failure/settle.ts',
    from: '    if (offset?.is_done === true) return undefined\n',
    to: '',
    caughtBy: {
      file: 'src/consumer/tables/offsets.pg.test.ts',
      test: 'a failure is not counted against an event that another instance has done',
    },
  },
  {
    mutant: 'ends a consumer before what lingers has begun',
    file: 'src/consumer/receive/batcher.ts',
    from: ' || this.#lingering !== undefined)',
    to: ')',
    caughtBy: { file: 'src/consumer/model/places.test.ts', test: 'the end waits for what still waits for company' },
  },
  {
    mutant: 'keeps the mark of a redrive whose letter was settled meanwhile',
    file: 'src/consumer/batch/apply-batch.ts',
    from: '  if (marked.length > 0) await execute(tx, forgetAttempts(scope, marked))\n',
    to: '',
    caughtBy: { file: fate, test: 'the mark of a redrive goes although an operator settled its letter meanwhile' },
  },
  {
    mutant: 'reads all positions of a consumer to move twenty, before there are statistics',
    file: 'src/consumer/tables/inbox.sql.ts',
    from: 'and p.aggregate_id = ${name(asked)}.aggregate_id limit 1)`',
    to: 'and p.aggregate_id = ${name(asked)}.aggregate_id)`',
    caughtBy: {
      file: 'src/consumer/stored/cost.pg.test.ts',
      test: '30,000 aggregates that a consumer has met cost a batch nothing, in tables with statistics from empty tables',
    },
  },
]
