/** Mutants of what keeps two versions of a consumer from losing each other's events. */
import type { SourceMutant } from './source-mutant.ts'

const mixed = 'src/consumer/batch/mixed-versions.pg.test.ts'
const readers = 'src/consumer/batch/readers.pg.test.ts'
const offsets = 'src/consumer/tables/offsets.pg.test.ts'
const lines = 'src/consumer/model/partition-order.test.ts'
const doctor = 'src/ops/doctor/consumers.pg.test.ts'
const rests =
  'what is put aside rests in line without an attempt, also when all who know it are gone, and is taken when one comes (direct)'

export const readerMutants: readonly SourceMutant[] = [
  {
    mutant: 'acknowledges what only another running version reads',
    file: 'src/consumer/receive/arrivals.ts',
    from: "others?.read(event, 'stream') === true ? 'aside' : onUnknownStream",
    to: 'onUnknownStream',
    caughtBy: { file: mixed, test: rests },
  },
  {
    mutant: 'decides by a look that began before the event came',
    file: 'src/consumer/batch/readers.ts',
    from: '    next = undefined\n    const looking = look()',
    to: '    const looking = look().finally(() => (next = undefined))',
    caughtBy: {
      file: mixed,
      test: 'an event is ignored only after a look that began behind its arrival, and one look serves all that wait',
    },
  },
  {
    mutant: 'looks once for each event of a foreign stream',
    file: 'src/consumer/batch/readers.ts',
    from: 'return () => (next ??= begin())',
    to: 'return async () => await look()',
    caughtBy: {
      file: mixed,
      test: 'an event is ignored only after a look that began behind its arrival, and one look serves all that wait',
    },
  },
  {
    mutant: 'makes a dead letter of a type that another running version knows',
    file: 'src/consumer/batch/put-aside.ts',
    from: "unknownOf(routes, item) === 'stream' || others?.read(item.event, 'type') === true",
    to: "unknownOf(routes, item) === 'stream'",
    caughtBy: { file: mixed, test: rests },
  },
  {
    mutant: 'takes up what it put aside itself',
    file: 'src/consumer/tables/inbox.sql.ts',
    from: "or (m.unknown is not distinct from 'type' and",
    to: "or (m.unknown is not distinct from 'never' and",
    caughtBy: { file: mixed, test: rests },
  },
  {
    mutant: 'counts nothing of what is put aside at its aggregate',
    file: 'src/consumer/batch/put-aside.ts',
    from: '  await execute(tx, lockPositions(scope, items))\n',
    to: '',
    caughtBy: { file: mixed, test: rests },
  },
  {
    mutant: 'takes a redriven letter from the instance that knows it',
    file: 'src/consumer/stored/redrive-and-release.ts',
    from: 'others?.read(item.event, unknown) === true',
    to: 'others === undefined',
    caughtBy: { file: mixed, test: 'a letter that is redriven is left to the instance that knows it' },
  },
  {
    mutant: 'holds an aggregate of a stream that nobody reads',
    file: 'src/consumer/failure/failure-policy.ts',
    from: " && reason !== 'unknown_stream'",
    to: '',
    caughtBy: {
      file: mixed,
      test: 'with onUnknownStream: dead-letter an event that nobody reads is a letter that holds nothing, and a redrive applies it in turn',
    },
  },
  {
    mutant: 'puts aside without the offset',
    file: 'src/consumer/batch/put-aside.ts',
    from: '(await takeOffsets(tx, scope, items)).filter(',
    to: 'items.filter(',
    caughtBy: {
      file: offsets,
      test: 'what only another running version reads is put aside in the order of the log, and its offset moves with it',
    },
  },
  {
    mutant: 'hands out what is behind an event that is still to be decided',
    file: 'src/consumer/model/partition-order.ts',
    from: 'if (!this.#isBroken && !this.#isUndecided) this.#hand(held)',
    to: 'if (!this.#isBroken) this.#hand(held)',
    caughtBy: {
      file: lines,
      test: 'what is behind one that is still to be decided waits for that, and stands for it if it is ignored',
    },
  },
  {
    mutant: 'counts registrations that have run out',
    file: 'src/consumer/tables/readers.sql.ts',
    from: 'r.generation = ${generation} and r.expires_at > clock_timestamp()',
    to: 'r.generation = ${generation}',
    caughtBy: {
      file: readers,
      test: 'an instance that died counts until its registration runs out, and any heartbeat removes it an hour later',
    },
  },
  {
    mutant: 'looks at once after an outage in which all registrations ran out',
    file: 'src/consumer/batch/readers.ts',
    from: 'if (restMs > 0) await clock.sleep(restMs, done.signal)',
    to: 'void restMs',
    caughtBy: { file: readers, test: 'after an outage a look waits until the others had the time to register again' },
  },
  {
    mutant: 'keeps a deploy that is half done to itself',
    file: 'src/ops/doctor/consumers.ts',
    from: '...(await mixedVersions(db, tables)),',
    to: '',
    caughtBy: {
      file: doctor,
      test: 'a deploy that is half done is told by doctor, status and readiness, and so is what rests for nobody',
    },
  },
]
