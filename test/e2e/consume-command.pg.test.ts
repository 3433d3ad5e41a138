/**
 * `waybill consume` as an operator runs it: a process of its own, with a configuration that knows nothing of signals.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { startChild, type Child } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { consumerFixture } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-consume-'))
afterAll(() => rm(folder, { recursive: true }))

const source = (path: string): string => JSON.stringify(new URL(`../../src/${path}`, import.meta.url).href)

async function consume(schema: string, config: string, ...words: readonly string[]): Promise<Child> {
  const file = join(folder, `${schema}.config.ts`)
  await writeFile(file, config)
  return startChild(new URL('../../src/cli/main.ts', import.meta.url), {
    args: ['consume', '--config', file, '--schema', schema, ...words],
    env: { DATABASE_URL: database.url },
  })
}

test('metrics show what a transport of the configuration and the connections to the database report', async () => {
  const { schema } = await consumerFixture(db)
  const child = await consume(
    schema,
    `
import { createConsumer } from ${source('consumer/consumer.ts')}
import { defaultSignals } from ${source('core/signals.ts')}
import { memory } from ${source('transport/memory/memory.ts')}
import { videos } from ${JSON.stringify(new URL('../setup/consumer-fixture.ts', import.meta.url).href)}

/** As kafka({ brokers }) does that was given no bus. */
function lagging() {
  const broker = memory()
  const receive = (options) => {
    defaultSignals.emit('transport.lag', { transport: 'memory', topic: options.topic, consumer: options.consumer, partition: '0', messages: 7 })
    return broker.receive(options)
  }
  return { ...broker, receive }
}
export default {
  service: 'test',
  transport: () => lagging(),
  consumers: (context) => [createConsumer({ ...context, name: 'catalog', streams: [videos] }).on(videos.VideoPublished, () => {})],
}
`,
    '--listen',
    '127.0.0.1:0',
  )
  await using running = child
  const address = await eventually(() => /metrics and health: (\S+)/.exec(running.stderr)?.[1] ?? false)
  const metrics = async (): Promise<string> => await (await fetch(`${String(address)}/metrics`)).text()
  await eventually(async () => expect(await metrics()).toMatch(/^waybill_transport_lag_messages\{.*\} 7$/m))
  await eventually(async () => {
    await db.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name = 'waybill' and state = 'idle'`,
    )
    expect(await metrics()).toMatch(/^waybill_database_connections_lost_total [1-9]/m)
  })
  expect(await running.kill('SIGTERM')).toEqual({ code: 0, signal: null })
})

test('a query that never ends keeps it neither from saying what went wrong nor from ending', async () => {
  const { schema } = await consumerFixture(db)
  await using child = await consume(
    schema,
    `
import { memory } from ${source('transport/memory/memory.ts')}
export default {
  service: 'test',
  transport: () => ({ ...memory(), close: () => new Promise(() => {}) }),
  consumers: ({ db }) => {
    db.query('select pg_sleep(3600)', []).catch(() => {})
    throw new Error('no consumers today')
  },
}
`,
  )
  expect(await child.exited).toEqual({ code: 1, signal: null })
  expect(child.stderr).toContain('no consumers today')
  // The server does not notice that nobody waits for it any more.
  await db.query(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query = 'select pg_sleep(3600)'`,
  )
})
