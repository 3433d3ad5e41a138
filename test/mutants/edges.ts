/** Mistakes at the edges of services: leases at the broker, sockets and sessions. */
import type { SourceMutant } from './source-mutant.ts'

export const edgeMutants: readonly SourceMutant[] = [
  {
    mutant: 'holds what a killed consumer had in hand for a minute',
    file: 'src/transport/pubsub/receive/lease-keeper.ts',
    from: 'return isExactlyOnce ? 60_000 : 15_000',
    to: 'return 60_000',
    caughtBy: {
      file: 'src/ops/provision/print.test.ts',
      test: 'what a killed consumer held is free again after 15 s, with exactly-once delivery after 60 s, or as it is said',
    },
  },
  {
    mutant: 'ends the process when a Redis client that nobody listens to loses its connection',
    file: 'src/command/cache/redis.ts',
    from: `  client.on?.('error', () => undefined)\n`,
    to: '',
    caughtBy: {
      file: 'src/command/cache/redis.redis.test.ts',
      test: 'a Redis that goes away fails the calls and never the process, also if nobody listens to the redis client',
    },
  },
  {
    mutant: 'ends the process when a listening connection breaks',
    file: 'src/postgres/listen.ts',
    from: `  client.on('error', (error) => {`,
    to: `  client.on('end', (error?: Error) => {`,
    caughtBy: {
      file: 'src/postgres/adapters/ending-connections.test.ts',
      test: 'a listener whose connections end as they open tells of each, tries again and never ends the process',
    },
  },
  {
    mutant: 'ends the process when a Kafka broker hangs up',
    file: 'src/transport/kafka/client/connections.ts',
    from: `  connection.on('error', onEnd)\n`,
    to: '',
    caughtBy: {
      file: 'src/transport/kafka/client/connections.test.ts',
      test: 'a broker that lets a client in and hangs up in the same breath fails the call and never the process',
    },
  },
  {
    mutant: 'ends the process when a stream of Pub/Sub fails',
    file: 'src/transport/pubsub/receive/pull-stream.ts',
    from: `      stream.on('error', (error) => end(error))\n`,
    to: '',
    caughtBy: {
      file: 'src/transport/pubsub/client/connection.test.ts',
      test: 'a service that hangs up on each connection fails the calls and never the process',
    },
  },
  {
    mutant: 'ends the process when a client of the fault proxy resets its connection',
    file: 'src/testing/faults/fault-pipe.ts',
    from: `    from.on('error', () => this.#arrive('reset'))\n`,
    to: `    from.off('error', () => this.#arrive('reset')).removeAllListeners('error')\n`,
    caughtBy: {
      file: 'packages/pubsub-server/test/rude-clients.broker.test.ts',
      test: 'end no server of ours, and none is in the way of its end',
    },
  },
  {
    mutant: 'keeps the lock of a data folder for as long as a guest stays',
    file: 'packages/pubsub-server/src/storage/data-lock.ts',
    from: 'createServer((socket) => socket.destroy())',
    to: 'createServer((socket) => socket.end())',
    caughtBy: {
      file: 'packages/pubsub-server/src/storage/data-lock.test.ts',
      test: 'a client that says something to the lock of a data folder, and is gone or stays, neither ends the process nor keeps the lock',
    },
  },
  {
    mutant: 'starts on a driver that reads other bytes than are stored',
    file: 'src/postgres/schema/deployment.ts',
    from: `  if (Buffer.from(bytes).toString('hex') !== '005cff41') throw`,
    to: `  if (bytes === undefined) throw`,
    caughtBy: {
      file: 'test/sessions/other-defaults.pg.test.ts',
      test: 'where its driver would read other bytes than are stored',
    },
  },
  {
    mutant: 'starts where NULL in an array is read as a word',
    file: 'src/postgres/schema/deployment.ts',
    from: `  if (!keeps_null) throw`,
    to: `  if (keeps_null === undefined) throw`,
    caughtBy: {
      file: 'test/sessions/other-defaults.pg.test.ts',
      test: 'where NULL in an array would be read as a word',
    },
  },
]
