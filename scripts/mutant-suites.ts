/**
 * The mutants that are kept: each is the protocol with one known mistake in it, and the suite named beside it must find it.
 *
 * A suite is a test file in which every mutant is a test that passes if the mistake was noticed. A mutant without an entry here,
 * or an entry without a mutant, fails the test beside this file, so none is forgotten and none disappears. Long names stand here
 * as the test runner shortens them.
 */

export interface MutantSuite {
  readonly area: 'relay' | 'consumer' | 'commands' | 'kafka'
  /** By what it finds mistakes. */
  readonly suite: string
  readonly file: string
  /** Which of the file's tests are mutants, and where in their names the mutant's own is. */
  readonly test: RegExp
  readonly mutants: readonly string[]
}

export const mutantSuites: readonly MutantSuite[] = [
  {
    area: 'relay',
    suite: 'scripted interleavings on Postgres',
    file: 'test/outbox/mutants.pg.test.ts',
    test: /a mutant that (.+) is caught$/,
    mutants: [
      'lets rows through behind a head',
      'reads in two snapshots',
      'locks and looks in one statement',
      'settles without locking the lane',
      'holds without looking again',
      'releases without promotion',
      'removes heads by the fast delete',
      'deletes a range',
      'deletes by lane and number',
      'continues after a failure',
      'takes the version outside the lock',
      'takes its place before the lock',
      'fences without a lock',
      'fences with too weak a lock',
      'settles without a fence',
      'sends after its lease',
      'renews for a batch that hangs',
      'polls by a cursor',
      'claims rows instead of lanes',
      'joins it away',
      'claims by a subquery',
    ],
  },
  {
    area: 'relay',
    suite: 'simulation',
    file: 'test/simulation/relay.test.ts',
    test: /a mutant that (.+)$/,
    mutants: [
      'lets rows through behind a head',
      'continues after a failure',
      'settles without a fence',
      'polls by a cursor',
      'takes what may have arrived for confirm…',
      'removes a head and promotes nobody',
      'confirms without a lock on the lane',
      'removes a range',
      'lets rows through behind a parked head',
      'takes the place in line before the vers…',
      'believes in leases from the future',
    ],
  },
  {
    area: 'relay',
    suite: 'formal model',
    file: 'test/model/relay-model.spin.test.ts',
    test: /a protocol with the mutation (.+)$/,
    mutants: [
      'UNFENCED',
      'CONTINUE_AFTER_FAILURE',
      'BLOCKED_AT_SETTLE_ONLY',
      'PARKED_DOES_NOT_BLOCK',
      'TWO_SNAPSHOTS',
      'DROP_EARLY',
      'NO_PROMOTION',
      'FAST_DELETE_OF_ANY_STATE',
      'LOCK_AND_LOOK_AT_ONCE',
      'RANGE_DELETE',
      'UNKNOWN_IS_CONFIRMED',
    ],
  },
  {
    area: 'consumer',
    suite: 'chaos on Postgres',
    file: 'test/consumer/mutants.pg.test.ts',
    test: /a consumer that (.+) is found out$/,
    mutants: [
      'acknowledges before the commit',
      'looks for duplicates before it writes',
      'deletes rows instead of keeping tombsto…',
      'compares versions as text',
      'applies deltas over a gap',
      'has an inbox without the consumer’s name',
      'has no inbox at all',
    ],
  },
  {
    area: 'consumer',
    suite: 'simulation',
    file: 'test/simulation/consumer.test.ts',
    test: /a mutant that (.+)$/,
    mutants: [
      'acknowledges before the commit',
      'looks for duplicates before it writes',
      'writes what is older than the row',
      'deletes rows instead of keeping tombsto…',
      'sets positions back',
      'does not count what waits',
      'applies deltas over a gap',
      'works lanes that are another’s',
      'believes in rests from the future',
    ],
  },
  {
    area: 'commands',
    suite: 'scenarios on Postgres',
    file: 'src/command/pipeline/run.pg.test.ts',
    test: /it is noticed when there is a mistake: (.+)$/,
    mutants: [
      'no marker',
      'the marker comes after the work',
      'the marker is written in another transaction',
      'the cache is completed before COMMIT',
      'the plan is made inside the loop',
      'the fingerprint is ignored',
    ],
  },
  {
    area: 'commands',
    suite: 'property on Postgres and Redis',
    file: 'test/e2e/command-mutants.redis.test.ts',
    test: /the property notices a mistake: (.+)$/,
    mutants: [
      'no marker',
      'the marker comes after the work',
      'the marker is written in another transaction',
      'the cache is completed before COMMIT',
      'the plan is made inside the loop',
      'the fingerprint is ignored',
    ],
  },
  {
    area: 'commands',
    suite: 'simulation',
    file: 'test/simulation/command.test.ts',
    test: /a mutant that (.+)$/,
    mutants: [
      'has no marker',
      'looks for a marker before it writes one',
      'writes the marker in another transaction',
      'writes the marker after the work',
      'ignores the fingerprint',
      'takes an unanswered COMMIT for done',
      'does not lock its aggregates',
    ],
  },
  {
    area: 'kafka',
    suite: 'group scenario',
    file: 'test/kafka/group-commits.test.ts',
    test: /the same scenario notices (.+)$/,
    mutants: ['auto-commit', 'commit before the database', 'commit after revoke', 'non-contiguous commit'],
  },
  {
    area: 'kafka',
    suite: 'publisher on a broker that loses answers',
    file: 'src/transport/kafka/publish/producer-id.test.ts',
    test: /it is noticed when a publisher (.+)$/,
    mutants: ['believes the last refusal alone', 'takes what it rejects for not there'],
  },
  {
    area: 'kafka',
    suite: 'fetcher behind retention',
    file: 'src/transport/kafka/receive/partition-fetcher.test.ts',
    test: /it is noticed when a fetcher (.+)$/,
    mutants: ['goes on at the end'],
  },
]

/** The mutant that a test is about, if it is about one. */
export function mutantOf({ test }: MutantSuite, testName: string): string | undefined {
  return test.exec(testName)?.[1]
}
