/**
 * The list of long suites. A new one is an entry here, with its files in test/proof.
 *
 * A suite reads WAYBILL_PROOF (`ci` or `full`) to choose how much to do; its seed is fixed, so that `ci` proves the same each time.
 */
import { availableParallelism } from 'node:os'
import { installedPostgresFolders, services } from './services.ts'

export interface ProofSuite {
  readonly name: string
  readonly summary: string
  readonly command: readonly string[]
  readonly env?: () => Readonly<Record<string, string>>
  /** Whether `--ci` runs it. */
  readonly inCi: boolean
  /** What it takes in full on two cores, for whoever waits. */
  readonly minutes: number
  /** What this machine lacks for it and how to get it. */
  readonly missing?: () => string | undefined
}

/**
 * The tests of what talks to Postgres, run again; a test that skips itself is a failure here. Pages, commands and whole systems
 * are left out: the statements below them are the same. `npm test` has the newest PostgreSQL without a pooler, so this has both others
 * at once.
 */
const left = [
  'test/proof/**',
  'test/{docs,deploy,drill,crash-matrix,telemetry,e2e,ingest,simulation,kafka}/**',
  '{scripts,src/cli,src/drill,src/testing}/**',
  // What they say of the tests does not depend on the server.
  'test/{consumer,outbox}/mutants.pg.test.ts',
]
// One worker more than there are cores: these tests wait for the server a good deal.
const workers = `--maxWorkers=${Math.min(4, availableParallelism() + 1)}`
const excluded = left.flatMap((glob) => ['--exclude', glob])
const postgresTests = ['node', 'scripts/test.ts', '--require-all', '.pg.test.ts', workers, ...excluded]

export const proofSuites: readonly ProofSuite[] = [
  {
    name: 'gates',
    summary: 'violations of every rule of `npm run check`, planted in a copy of the tree: each is found',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/gates'],
    inCi: true,
    minutes: 1,
  },
  {
    name: 'fuzz',
    summary: 'bad input by the seed, against HTTP, codecs, a consumer, Kafka’s format, tokens, the cache and the command line',
    command: ['node', 'scripts/fuzz.ts', '--for', '60s'],
    inCi: true,
    minutes: 1,
  },
  {
    name: 'system-postgres-pgbouncer',
    summary: "the tests on Postgres again on the PostgreSQL of the machine's packages, through PgBouncer in transaction mode",
    command: postgresTests,
    env: () => ({ WAYBILL_TEST_PGBOUNCER: '1', WAYBILL_TEST_POSTGRES: installedPostgresFolders()[0] ?? '' }),
    inCi: true,
    minutes: 5,
    missing: () => missingService('pgbouncer') ?? missingPostgres(),
  },
  {
    name: 'relay-stress',
    summary: 'relay processes under freezes, kills, a lying broker, changes of lanes and operators, over several seeds',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/relay-stress'],
    inCi: true,
    minutes: 3,
  },
  {
    name: 'pubsub-stress',
    summary:
      "the relay stress over Google's client, through every fault of the Pub/Sub server in turn, and a rolling restart of consumers",
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/pubsub-'],
    inCi: true,
    minutes: 3,
  },
  {
    name: 'kafka-stress',
    summary: 'rebalance storms, and relays over three brokers whose leaders are killed',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/kafka-st'],
    inCi: true,
    minutes: 8,
    missing: () => missingService('kafka'),
  },
  {
    name: 'ingest-chaos',
    summary:
      'facts over HTTP, Kafka and Pub/Sub into a table, with every hop killed: in full a hundred thousand, again and again',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/ingest-chaos'],
    inCi: true,
    minutes: 4,
    missing: () => missingService('kafka'),
  },
  {
    name: 'commands',
    summary: 'commands from many clients while processes, Redis and connections break: each fault at each step, and by seeds',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/command-'],
    inCi: true,
    minutes: 2,
    missing: () => missingService('redis'),
  },
  {
    name: 'simulation',
    summary: 'relay, consumer and command code on a simulated store and broker, thousands of histories chosen by seeds',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/simulation'],
    inCi: true,
    minutes: 4,
  },
  {
    name: 'crash-matrix',
    summary: 'every place of every process crossed with every fault that can reach it; in CI a part that its seed chooses',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/crash-matrix'],
    inCi: true,
    minutes: 10,
    missing: () => missingService('redis'),
  },
  {
    name: 'kafka-crash-matrix',
    summary: 'the same with Kafka as the broker, and the places of its requests and of its groups',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/kafka-crash-matrix'],
    inCi: true,
    minutes: 9,
    missing: () => missingService('kafka'),
  },
  {
    name: 'drills',
    summary: 'every drill on embedded parts, none skipped',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/drills'],
    inCi: true,
    minutes: 4,
    missing: () => missingService('redis') ?? missingService('promtool'),
  },
  {
    name: 'demo-alerts',
    summary: 'the demo, watched by Prometheus with the shipped rules: a relay that stands still and a dead letter',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/demo-alerts'],
    inCi: true,
    minutes: 1,
    missing: () => missingService('promtool'),
  },
  {
    name: 'relay-model',
    summary: 'every interleaving of the relay’s protocol within larger bounds, by Spin',
    command: ['node', 'scripts/test.ts', '--require-all', 'test/proof/relay-model'],
    inCi: false,
    minutes: 5,
    missing: () => missingService('spin'),
  },
]

function missingPostgres(): string | undefined {
  return installedPostgresFolders().length === 0
    ? 'no PostgreSQL under /usr/lib/postgresql; apt-get install postgresql'
    : undefined
}

/** What a service of the tests lacks here. */
function missingService(name: string): string | undefined {
  return services.find((service) => service.name === name)?.missing()
}
