import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { consumerFixture, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { runLine } from '../../../test/setup/run-line.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { createSigner, createVerifier } from '../../core/event/signing.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-refused-cli-'))
afterAll(() => rm(folder, { recursive: true }))

test('refused messages are counted by consumer and reason, or listed with what they say, without what a terminal acts upon', async () => {
  const fixture = await consumerFixture(db)
  const verifier = createVerifier({ keys: [{ keyId: 'owner', secret: randomBytes(32) }] })
  const stranger = createSigner({ keyId: 'stranger', secret: randomBytes(32) })
  const stop = fixture.start(fixture.consumer({ verify: 'required', verifier }).on(videos.VideoPublished, () => undefined))
  await fixture.publish(published('a', 1), published('b\u001b[2J', 2), stranger.sign(published('c', 3)))
  await eventually(async () => (await fixture.count('refused_message')) === 3)
  await stop()
  const run = (line: string): ReturnType<typeof runLine> =>
    runLine(`refused ${line} --schema ${fixture.schema}`, { folder, env: { DATABASE_URL: database.url } })
  expect((await run('')).out).toMatch(/^CONSUMER .*\ncatalog +unknown_key +1 +1 .*\ncatalog +unsigned +2 +2 .*\n$/)
  expect(JSON.parse((await run('--reason unsigned --json')).out)).toMatchObject([{ consumer: 'catalog', count: 2 }])
  const listed = await run('--each')
  expect(listed.out).toMatch(/catalog +unknown_key +stranger +video.events .* VideoPublished +c +3 +/)
  expect(listed.out).not.toContain('\u001b')
  const [only, ...others] = JSON.parse((await run('--each --reason unknown_key --json')).out) as { bodyBase64: string }[]
  expect(others).toEqual([])
  expect(Buffer.from(only?.bodyBase64 ?? '', 'base64').toString()).toBe('{"title":"c 3"}')
  expect((await run('--consumer nobody')).out).toBe('None.\n')
  expect(await run('--reason bad')).toMatchObject({ code: 2 })
})
