/** Mistakes in what must mean the same in sessions with other defaults. */
import type { SourceMutant } from './source-mutant.ts'

const sessions = 'test/sessions/other-defaults.pg.test.ts'
const operators = 'test/sessions/operators.pg.test.ts'
const germanDates = 'operators get the same in sessions with dates of China in German style'
const everyStep = 'events get from a command to their effects once, in order, and dead letters and retention work'

export const sessionMutants: readonly SourceMutant[] = [
  {
    mutant: 'sends statements that need READ COMMITTED in the session’s isolation',
    file: 'src/postgres/transaction/steady-statements.ts',
    from: `state === '25001' || isRetryableState(state)`,
    to: `isRetryableState(state)`,
    caughtBy: { file: sessions, test: everyStep },
  },
  {
    mutant: 'counts the age for retention from the wall clock of the session’s TimeZone',
    file: 'src/outbox/tables/retention.sql.ts',
    from: 'extract(epoch from clock_timestamp())',
    to: 'extract(epoch from clock_timestamp()::timestamp)',
    caughtBy: { file: sessions, test: everyStep },
  },
  {
    mutant: 'gives up a removal that takes longer than its role’s statement_timeout',
    file: 'src/postgres/transaction/steady-statements.ts',
    from: ' || isStatementTimeout(error)',
    to: '',
    caughtBy: {
      file: 'test/sessions/short-time-outs.pg.test.ts',
      test: 'retention removes a batch that takes longer than its role’s statement_timeout',
    },
  },
  {
    mutant: 'adds an event whose row a trigger dropped',
    file: 'sql/0003_create_outbox.sql',
    from: `  raise exception 'A trigger on the outbox`,
    to: `  return true;\n  raise exception 'A trigger on the outbox`,
    caughtBy: {
      file: 'src/outbox/outbox.pg.test.ts',
      test: 'of outbox_dispatch makes add fail, alone and in bulk, and nothing is left behind',
    },
  },
  {
    mutant: 'tells the time of a status as text in the session’s DateStyle',
    file: 'src/ops/status/status.sql.ts',
    from: `to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at`,
    to: 'clock_timestamp()::text as at',
    caughtBy: { file: operators, test: germanDates },
  },
]
