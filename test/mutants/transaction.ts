/** Mistakes in the transaction runner and its adapters. */
import type { SourceMutant } from './source-mutant.ts'

const [pgAdapter, drizzle] = ['src/postgres/adapters/from-pg.pg.test.ts', 'src/postgres/adapters/from-drizzle.pg.test.ts']

export const transactionMutants: readonly SourceMutant[] = [
  {
    mutant: 'commits although a statement is in flight',
    file: 'src/postgres/transaction/gate.ts',
    from: `  if (underWay.size > 0) throw stillUnderWay('The closure', namesOf([...underWay]))`,
    to: `  if (underWay.size > 99) throw stillUnderWay('The closure', namesOf([...underWay]))`,
    caughtBy: {
      file: pgAdapter,
      test: 'a single statement that nobody awaited is rolled back with everything before it, and named',
    },
  },
  {
    mutant: 'counts an event from its statement on',
    file: 'src/outbox/outbox.ts',
    from: 'return await within(tx, nameOf(events), () => addAll(tx, events))',
    to: 'return await addAll(tx, events)',
    caughtBy: { file: pgAdapter, test: 'an event counts from the first line of add, also while its data is encoded' },
  },
  {
    mutant: 'refuses a late statement without a signal',
    file: 'src/postgres/transaction/gate.ts',
    from: `  gate.signals.emit('transaction.used-after-end', {`,
    to: `  if (gate.hasFailed) gate.signals.emit('transaction.used-after-end', {`,
    caughtBy: { file: pgAdapter, test: 'what comes after the end is refused and told, with whether the rest was committed' },
  },
  {
    mutant: 'charges the whole batch for a statement that one handler left in flight',
    file: 'src/postgres/transaction/tx-scope.ts',
    from: '    endScope(scope)\n',
    to: `    scope.state = 'open'\n`,
    caughtBy: {
      file: 'src/consumer/batch/under-way.pg.test.ts',
      test: 'is charged to the event whose handler left it, and its nine neighbours are applied',
    },
  },
  {
    mutant: 'adds an event behind the COMMIT of the user’s own transaction',
    file: 'src/postgres/adapters/from-pg.ts',
    from: '  if (isEnding(client)) throw notInTransaction()\n',
    to: '',
    caughtBy: { file: pgAdapter, test: 'an event that is added behind the COMMIT of the user’s own transaction is refused' },
  },
  {
    mutant: 'keeps a connection whose ROLLBACK has no answer',
    file: 'src/postgres/adapters/from-pg.ts',
    from: '    )) === undefined\n  )\n    throwAway(client)',
    to: '    )) === undefined\n  )\n    clean()',
    caughtBy: {
      file: 'src/postgres/adapters/given-up.pg.test.ts',
      test: 'closes the connection of a ROLLBACK that is not answered in time, and its caller hears why it rolled back',
    },
  },
  {
    mutant: 'listens to a client only after it was awaited',
    file: 'src/postgres/adapters/borrow-client.ts',
    from: `      client.on('error', ignore)\n      resolve(client)`,
    to: `      resolve(client)\n      queueMicrotask(() => setImmediate(() => client.on('error', ignore)))`,
    caughtBy: {
      file: 'src/postgres/adapters/ending-connections.test.ts',
      test: 'a connection that ends as it is handed out fails the work and never the process',
    },
  },
  {
    mutant: 'joins a transaction whose isolation is weaker than the one asked for',
    file: 'src/postgres/transaction/transaction.ts',
    from: `if (settings.isolation !== 'read committed') await assertIsolation(db, settings.isolation)`,
    to: `if (settings.isolation === undefined) await assertIsolation(db, settings.isolation)`,
    caughtBy: {
      file: pgAdapter,
      test: 'a closure that joins a transaction cannot ask for a stronger isolation than that has, nor for what does not exist',
    },
  },
  {
    mutant: 'raises every synchronous_commit to on',
    file: 'src/postgres/transaction/tx-scope.ts',
    from: `if (durability === 'off' && synchronousCommit === 'on')`,
    to: `if (durability !== 'on' && synchronousCommit === 'on')`,
    caughtBy: {
      file: pgAdapter,
      test: 'a session’s synchronous_commit stays as it is, but for off, which is raised unless it was asked for',
    },
  },
  {
    mutant: 'takes a transaction id to read',
    file: 'src/postgres/adapters/from-pg.ts',
    from: `\${isReading ? '' : askBegun}`,
    to: `\${askBegun}`,
    caughtBy: {
      file: pgAdapter,
      test: 'a transaction that is read only takes no transaction id, and the server refuses its writes',
    },
  },
  {
    mutant: 'nests Drizzle transactions at once, whose savepoints have one name',
    file: 'src/postgres/adapters/from-drizzle.ts',
    from: '    if (isNesting) throw nestedAtOnce()\n',
    to: '',
    caughtBy: {
      file: drizzle,
      test: 'transactions nested at once are refused, so that one that is rolled back takes no other with it',
    },
  },
  {
    mutant: 'tells a commit as done that no synchronous standby has',
    file: 'src/postgres/transaction/commit-outcome.ts',
    from: `return (await isReplicated(db, clock)) ? 'committed' : 'unknown'`,
    to: `return 'committed'`,
    caughtBy: {
      file: 'src/postgres/transaction/commit-outcome.pg.test.ts',
      test: 'a commit that no synchronous standby has yet is not told as done when it is looked up',
    },
  },
  {
    mutant: 'answers a repeat by a marker that no synchronous standby has',
    file: 'src/command/model/command.sql.ts',
    from: ', ${standbyBarrier} as barrier',
    to: ', null as barrier',
    caughtBy: {
      file: 'src/command/unreplicated.pg.test.ts',
      test: 'a repeat is not answered by a commit that no synchronous standby has yet',
    },
  },
  {
    mutant: 'gives the driver a second statement before the first is answered',
    file: 'src/postgres/transaction/gate.ts',
    from: `    if (gate.isBusy) {\n`,
    to: `    if (gate.isBusy && gate.hasFailed) {\n`,
    caughtBy: {
      file: pgAdapter,
      test: 'a closure that sends many statements at once has one under way, in whichever way it sends them',
    },
  },
  {
    mutant: 'counts only what is sent by a promise',
    file: 'src/postgres/adapters/from-pg.ts',
    from: 'const operation = enter(gate, text)\n  let isDone',
    to: 'const operation = enter({ ...gate, underWay: new Set() }, text)\n  let isDone',
    caughtBy: {
      file: pgAdapter,
      test: 'what was sent by a query object and not answered when the closure returned is rolled back, and named',
    },
  },
  {
    mutant: 'waits for ever behind a cursor of postgres.js that stayed open',
    file: 'src/postgres/adapters/from-postgres-js.ts',
    from: `  if (close !== undefined) operation.close = close\n`,
    to: '',
    caughtBy: {
      file: 'src/postgres/adapters/from-postgres-js.pg.test.ts',
      test: 'a cursor counts until it is closed, a statement from when it is sent, and a fragment never',
    },
  },
]
