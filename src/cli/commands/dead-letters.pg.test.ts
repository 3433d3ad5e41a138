import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { accounts, consumerFixture, deposited, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-dlq-cli-'))
afterAll(() => rm(folder, { recursive: true }))

const cli = (line: string, signal?: AbortSignal): Promise<Ended> =>
  runLine(line, { folder, env: { DATABASE_URL: database.url }, signal })

interface Case {
  readonly fixture: ConsumerFixture
  readonly broken: Set<number>
  readonly stop: () => Promise<void>
  run(line: string): Promise<Ended>
}

/** Accounts x and y have a dead deposit each; behind that of x waits another. */
async function dead(): Promise<Case> {
  const fixture = await consumerFixture(db)
  const broken = new Set([7])
  const consumer = fixture.consumer({ maxAttempts: 1 }).on(accounts.Deposited, async (event, { tx }) => {
    if (broken.has(event.data.amount)) throw new Error('out of \u001b[31mcash')
    await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version) values ($1, $2)`, [
      event.aggregateId,
      String(event.version),
    ])
  })
  const stop = fixture.start(consumer)
  await fixture.publish(deposited('x', 1, 7), deposited('x', 2, 1), deposited('y', 1, 7))
  await eventually(async () => (await fixture.count('dead_letter')) === 2 && (await fixture.count('inbox_message')) === 1)
  return { fixture, broken, stop, run: (line) => cli(`${line} --schema ${fixture.schema}`) }
}

test('list counts by consumer, reason and type, or shows each; show has the body, without what a terminal acts upon', async () => {
  const { run, stop } = await dead()
  await stop()
  expect((await run('dlq list')).out).toMatch(/^CONSUMER .*\ncatalog +failed +Deposited +2 .* out of {2}\[31mcash\n$/)
  expect(JSON.parse((await run('dlq list --json')).out)).toMatchObject([{ consumer: 'catalog', count: 2 }])
  const each = JSON.parse((await run('dlq list --each --json')).out) as { id: string; aggregateId: string; holding: number }[]
  expect(each).toMatchObject([{}, {}])
  const x = each.find(({ aggregateId }) => aggregateId === 'x')
  expect(x?.holding).toBe(1)
  expect((await run(`dlq show --id ${x?.id}`)).out).toContain('body           not asked for: --payload shows it')
  const shown = await run(`dlq show --id ${x?.id} --payload`)
  expect(shown.out).not.toContain('\u001b')
  expect(shown.out).toContain('body           12 bytes: {"amount":7}')
  expect(JSON.parse((await run(`dlq show --id ${x?.id} --payload --json`)).out)).toMatchObject({
    bodyBase64: Buffer.from('{"amount":7}').toString('base64'),
  })
  expect(await run('dlq list --state lost')).toMatchObject({ code: 2 })
  expect(await run('dlq list --aggregate x')).toMatchObject({ code: 2, err: expect.stringContaining('the type is missing') })
  expect((await run('dlq list --state redriven')).out).toBe('None.\n')
})

test('a redrive must say which letters; a dry run changes nothing; then the consumer applies them', async () => {
  const { fixture, broken, run, stop } = await dead()
  expect(await run('dlq redrive')).toMatchObject({ code: 2, err: expect.stringContaining('Which dead letters?') })
  const dry = await run('dlq redrive --all --dry-run')
  expect(dry).toMatchObject({ code: 0, out: expect.stringMatching(/^VERDICT .*\napply .*\napply /) })
  expect(await fixture.count('dead_letter', `state = 'dead'`)).toBe(2)
  broken.clear()
  expect(await run('dlq redrive --consumer catalog --reason failed --why mended')).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^Redriving 2 dead letters \(operation .*\)\.\n$/),
  })
  await eventually(async () => (await fixture.count('effect')) === 3)
  await stop()
  expect(await run('dlq redrive --all')).toMatchObject({ code: 4 })
})

test('discard only explains itself without --yes', async () => {
  const { fixture, run, stop } = await dead()
  expect(await run('dlq discard --all')).toMatchObject({ code: 3, err: expect.stringContaining('Nothing was changed.') })
  expect(await fixture.count('dead_letter', `state = 'dead'`)).toBe(2)
  expect(await run('dlq discard --stream account --aggregate x --yes')).toMatchObject({
    code: 0,
    out: 'Discarded 1 dead letter.\n',
  })
  await eventually(async () => (await fixture.count('effect')) === 1)
  await stop()
  expect(await fixture.count('dead_letter', `state = 'dead'`)).toBe(1)
})

test('pause and resume name a consumer, or one aggregate of it', async () => {
  const { run, stop } = await dead()
  expect(await run('pause')).toMatchObject({ code: 2 })
  expect(await run('pause --consumer catalog --stream account')).toMatchObject({ code: 2 })
  expect((await run('pause --consumer catalog')).out).toBe('Paused: consumer catalog.\n')
  expect((await run('resume --consumer catalog')).out).toBe('Resumed: consumer catalog.\n')
  expect((await run('pause --consumer catalog --stream account --aggregate z')).out).toBe(
    'Paused: account z of consumer catalog.\n',
  )
  expect((await run('pause --consumer catalog --stream account --aggregate z')).out).toBe(
    'account z of consumer catalog was paused already.\n',
  )
  expect(await run('resume --consumer catalog --stream account --aggregate x')).toMatchObject({ code: 4 })
  expect(await run('pause --consumer nobody')).toMatchObject({ code: 1, err: expect.stringContaining('has never run here') })
  await stop()
})

test('waybill consume runs the consumers of the configuration until it is stopped', async () => {
  const fixture = await consumerFixture(db)
  const shared = globalThis as { waybillTest?: unknown }
  shared.waybillTest = {
    broker: { ...fixture.broker, close: async () => {} },
    consumer: (context: object) =>
      fixture
        .consumer({ ...context, streams: [accounts] })
        .on(
          accounts.Deposited,
          async (event, { tx }) =>
            void (await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version) values ($1, 1)`, [
              event.aggregateId,
            ])),
        ),
  }
  await writeFile(
    join(folder, 'consume.config.mjs'),
    `const { broker, consumer } = globalThis.waybillTest
     export default { service: 'test', schema: '${fixture.schema}', transport: () => broker,
       consumers: ({ service, ...context }) => [consumer(context)] }`,
  )
  expect(await cli('consume --config consume.config.mjs --consumer nobody')).toMatchObject({
    code: 1,
    err: expect.stringContaining('it has catalog'),
  })
  const stop = new AbortController()
  const running = cli('consume --config consume.config.mjs', stop.signal)
  await fixture.publish(deposited('x', 1, 1))
  await eventually(async () => (await fixture.count('effect')) === 1)
  stop.abort()
  expect(await running).toMatchObject({
    code: 0,
    out: 'Applied 1 event.\n',
    err: expect.stringContaining('consumer catalog: reading from'),
  })
  expect(await cli('consume')).toMatchObject({ code: 2 })
})
