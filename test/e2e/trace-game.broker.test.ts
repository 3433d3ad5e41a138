/**
 * `waybill trace` and `waybill status` as an operator of the game runs them: processes of their own, over two services with a
 * database each and a broker between them.
 */
import { fileURLToPath } from 'node:url'
import { beforeAll, expect, test } from 'vitest'
import { runCommand } from '../../scripts/run-command.ts'
import { startChild, type Child } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'

const root = new URL('../../', import.meta.url)
let game: Child
let env: Record<string, string>
let url: string

beforeAll(async () => {
  game = startChild(new URL('scripts/example.ts', root), { args: ['game'] })
  interface Said {
    readonly url: string
    readonly databaseUrl: string
    readonly leaderboardUrl: string
  }
  const said = await game.message<Said>((message) => typeof message?.url === 'string')
  url = said.url
  env = { DATABASE_URL: said.databaseUrl, LEADERBOARD_URL: said.leaderboardUrl }
  return async () => void (await game.kill('SIGTERM'))
})

async function waybill(...words: readonly string[]): Promise<{ readonly code: number | null; readonly output: string }> {
  const source = fileURLToPath(new URL('scripts/from-source.ts', root))
  const configs = ['--config', 'examples/game/waybill.config.ts', '--also', 'examples/game/leaderboard.config.ts']
  return await runCommand(['node', '--import', source, 'src/cli/main.ts', ...words, ...configs], { env })
}

async function post(path: string, key: string, body: object): Promise<number> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': key, 'x-player': 'ann' }
  return (await fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) })).status
}

test('a request id shows marker, events, publishes, deliveries and projection versions across both services', async () => {
  expect(await post('/players', 'new', { playerId: 'ann', name: 'Ann' })).toBe(200)
  expect(await post('/teach', 'lesson', { playerId: 'ann', hero: 'mage', skill: 'fire' })).toBe(200)
  const standing = async (): Promise<unknown> => await (await fetch(`${url}/standings`)).json()
  await eventually(async () => expect(await standing()).toEqual([{ name: 'Ann', gold: 95, version: '2' }]))

  const { code, output } = await waybill('trace', 'lesson', '--principal', 'ann', '--json')
  expect(code).toBe(0)
  const found = JSON.parse(output.trim().split('\n').at(-1) ?? '') as { timeline: { service: string; text: string }[] }
  expect(found).toMatchObject({
    request: { service: 'game', command: 'Teach', principal: 'ann', requestId: 'lesson' },
    events: [
      {
        recorded: { service: 'game', aggregateType: 'player', aggregateId: 'ann', version: '2' },
        publishes: [{ attempts: 1 }],
        deliveries: [
          {
            service: 'leaderboard',
            consumer: 'leaderboard',
            state: 'applied',
            projections: [{ table: 'public.standing', version: '2', deleted: false }],
          },
        ],
      },
    ],
    notes: [],
  })
  const text = await waybill('trace', 'lesson')
  expect(text.code).toBe(0)
  for (const part of [
    'Teach of ann, request lesson: committed',
    'published by',
    'applied by leaderboard',
    'public.standing has version 2',
  ])
    expect(text.output).toContain(part)
  expect(text.output).not.toContain('Ann')
})

test('the status of both is good, and a request that nobody made is not found', async () => {
  const status = await waybill('status', '--check')
  expect(status.output).toMatch(/^game, schema waybill[\s\S]*^leaderboard, schema waybill/m)
  expect(status.output).toContain('Consumer   leaderboard')
  expect(status.code).toBe(0)
  const unknown = await waybill('trace', 'nothing', '--principal', 'ann')
  expect(unknown).toMatchObject({ code: 1, output: expect.stringContaining('Nothing is known of "nothing"') })
})
