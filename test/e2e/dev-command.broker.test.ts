/**
 * `waybill dev` as a developer runs it: one command in a folder with a configuration, and Ctrl-C.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { startChild, type Child } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'

const folder = await mkdtemp(join(tmpdir(), 'waybill-dev-'))
afterAll(() => rm(folder, { recursive: true }))
const main = new URL('../../src/cli/main.ts', import.meta.url)
const source = (path: string): string => JSON.stringify(new URL(`../../src/${path}`, import.meta.url).href)

/** A service that writes greetings and reads them itself, over Pub/Sub. */
const config = `
import { createConsumer } from ${source('consumer/consumer.ts')}
import { state } from ${source('core/event/event.ts')}
import { stream } from ${source('core/event/stream.ts')}
import { pubsub } from ${source('transport/pubsub/pubsub.ts')}
import { suffix } from './suffix.ts'

const schema = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
const greetings = stream('greeting', { topic: 'greeting.events', events: { Greeted: state(schema) } })
const { PUBSUB_PROJECT_ID: projectId = '', PUBSUB_EMULATOR_HOST: emulatorHost } = process.env

export default {
  service: 'greeter',
  streams: [greetings],
  transport: () => pubsub({ projectId, emulatorHost }),
  pubsub: { provision: { streams: [greetings], consumers: [{ name: 'reader', streams: [greetings] }] } },
  prepare: ({ db }) => db.query('create table if not exists heard (id text primary key, text text, version bigint not null, deleted_at timestamptz)'),
  consumers: (context) => [
    createConsumer({ ...context, name: 'reader', streams: [greetings], pollMs: 50 }).project(greetings, {
      table: 'public.heard', key: 'id', set: ({ data }) => ({ text: data.text + suffix }),
    }),
  ],
}
`

async function printed(child: Child, pattern: RegExp): Promise<string> {
  return await eventually(() => pattern.exec(child.stderr)?.[1] ?? false, { timeoutMs: 90_000 })
}

test('one command runs databases, broker, relay and consumers; a change is taken up; Ctrl-C ends it all', async () => {
  await writeFile(join(folder, 'suffix.ts'), `export const suffix = '!'\n`)
  await writeFile(join(folder, 'waybill.config.ts'), config)
  const dev = startChild(main, { args: ['dev', '--config', join(folder, 'waybill.config.ts')] })
  const databaseUrl = await printed(dev, /DATABASE_URL=(\S+)/)
  await printed(dev, /(PUBSUB_EMULATOR_HOST=127\.0\.0\.1:\d+)/)
  await printed(dev, /(greeter runs)/)
  const db = connect({ url: databaseUrl, max: 1 })
  const greet = (id: string): Promise<unknown> =>
    db.query(
      `select waybill.add_event('greeting.events', 'greeting', '${id}', 'Greeted', convert_to('{"text": "hello"}', 'UTF8'))`,
    )
  const heard = async (id: string): Promise<unknown> =>
    (await db.query('select text, version::text from heard where id = $1', [id])).rows
  await greet('one')
  await eventually(async () => expect(await heard('one')).toEqual([{ text: 'hello!', version: '1' }]), { timeoutMs: 60_000 })

  await printed(dev, /(consume\s+.*reading from)/)
  await writeFile(join(folder, 'suffix.ts'), `export const suffix = '?'\n`)
  expect(await readFile(join(folder, 'suffix.ts'), 'utf8')).toContain('?')
  let n = 0
  await eventually(
    async () => {
      const id = `again-${(n += 1)}`
      await greet(id)
      await eventually(async () => ((await heard(id)) as unknown[]).length === 1)
      expect(await heard(id)).toEqual([{ text: 'hello?', version: '1' }])
    },
    { timeoutMs: 60_000 },
  )
  await db.close()
  expect(await dev.kill('SIGINT')).toEqual({ code: 0, signal: null })
  const gone = connect({ url: databaseUrl, max: 1 })
  await expect(gone.query('select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  await gone.close()
}, 240_000)

test('a database of another machine is refused unless that is meant', async () => {
  const child = startChild(main, {
    args: ['dev', '--config', join(folder, 'waybill.config.ts'), '--database-url', 'postgres://ann@db.example.com/prod'],
  })
  expect(await child.exited).toEqual({ code: 3, signal: null })
  expect(child.stderr).toContain('The database is on db.example.com')
})
