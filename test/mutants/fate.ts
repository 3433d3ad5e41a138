/** Mistakes in what becomes of an event: its dead letter, its inbox row, how long both are kept, and the table that it changed. */
import type { SourceMutant } from './source-mutant.ts'

const fate = 'src/consumer/event-fate.pg.test.ts'

export const fateMutants: readonly SourceMutant[] = [
  {
    mutant: 'leaves the dead letter of an event open that took effect by another delivery',
    file: 'src/consumer/batch/apply-batch.ts',
    from: '  if (settled.length > 0) await execute(tx, settleApplied(scope, settled))\n',
    to: '',
    caughtBy: {
      file: fate,
      test: 'a dead letter whose event takes effect by another delivery is settled with that effect',
    },
  },
  {
    mutant: 'discards a letter whose event took effect',
    file: 'src/consumer/operate/discard.ts',
    from: '  const applied = locked.filter((id) => !discarded.includes(id))\n  await rows(tx, moveLetters(tables, discarded,',
    to: '  const applied: string[] = []\n  await rows(tx, moveLetters(tables, locked,',
    caughtBy: { file: fate, test: 'a discard leaves out a letter whose event took effect, closes it, and says so' },
  },
  {
    mutant: 'keeps the attempts of an event that took effect',
    file: 'src/consumer/tables/claim.sql.ts',
    from: '      delete from ${tables.attempt} a\n       where a.consumer',
    to: '      delete from ${tables.attempt} a\n       where false and a.consumer',
    caughtBy: { file: fate, test: 'attempts of an event go with its effect, also if another instance wrote them down' },
  },
  {
    mutant: 'hides dead letters from the doctor whose event took effect',
    file: 'src/ops/doctor/consumers.ts',
    from: `  return [{ problem: 'letter-applied', text }]`,
    to: '  return text === undefined ? [] : []',
    caughtBy: {
      file: 'src/ops/doctor/consumers.pg.test.ts',
      test: 'the doctor finds dead letters whose event has taken effect, and what it advises closes them',
    },
  },
  {
    mutant: 'removes every marker after a step of the database’s clock',
    file: 'src/command/marker-cleanup.ts',
    from: 'const ageMs = (await look())(keepMs)',
    to: 'const ageMs = ((await look())(keepMs), keepMs)',
    caughtBy: {
      file: 'src/command/marker-cleanup.pg.test.ts',
      test: 'a step of the database’s clock removes no marker before its TTL has passed since, and is told',
    },
  },
  {
    mutant: 'forgets the inbox after a step of the database’s clock',
    file: 'src/consumer/operate/retention.ts',
    from: 'aged = await look()',
    to: 'aged = (await look(), (ageMs) => ageMs)',
    caughtBy: {
      file: 'src/consumer/operate/retention.pg.test.ts',
      test: 'a step of the database’s clock removes nothing from the inbox, and nothing is called forgotten',
    },
  },
  {
    mutant: 'leaves the parts of a rebuilt table with other names',
    file: 'src/ops/rebuild/shadow.ts',
    from: '    await runAll(tx, await rows(tx, findNames(live.tableText, shadow.tableText, oldSuffix)))\n',
    to: '',
    caughtBy: {
      file: 'src/ops/rebuild/names.pg.test.ts',
      test: 'a swap keeps the names of constraints, indexes, statistics and sequences, comments and targets, also the second time',
    },
  },
]
