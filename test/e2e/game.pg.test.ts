/**
 * The game of examples/game, as its reader would run it: over HTTP, and through its own chaos.
 */
import { expect, test } from 'vitest'
import { runCommand } from '../../scripts/run-command.ts'
import { startChild } from '../../src/testing/process/child.ts'

const script = new URL('../../scripts/example.ts', import.meta.url)
const signalAgain = new URL('../fixtures/signal-again.ts', import.meta.url).href

test('one command starts it, and it serves its commands over HTTP', async () => {
  await using game = startChild(script, { args: ['game'], env: { NODE_OPTIONS: `--import=${signalAgain}` } })
  const { url } = await game.message<{ url: string }>((message) => typeof message?.url === 'string')
  const post = async (
    path: string,
    key: string,
    body: object,
  ): Promise<{ status: number; body: unknown; replayed: string | null }> => {
    const headers = { 'content-type': 'application/json', 'idempotency-key': key, 'x-player': 'ann' }
    const response = await fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
    return { status: response.status, body: await response.json(), replayed: response.headers.get('idempotent-replayed') }
  }
  expect(await post('/players', 'new', { playerId: 'ann', name: 'Ann' })).toMatchObject({
    status: 200,
    body: { playerId: 'ann' },
  })
  const chest = { playerId: 'ann', item: 'wooden-chest' }
  const opened = await post('/use-item', 'chest', chest)
  expect(opened).toMatchObject({ status: 200, body: { loot: expect.any(Array) }, replayed: null })
  expect(await post('/use-item', 'chest', chest)).toEqual({ ...opened, replayed: 'true' })
  expect(await post('/teach', 'teach', { playerId: 'ann', hero: 'mage', skill: 'fire' })).toMatchObject({ status: 200 })
  expect(await post('/teach', 'again', { playerId: 'ann', hero: 'mage', skill: 'fire' })).toMatchObject({
    status: 422,
    body: { reason: 'already-knows' },
  })
  expect(await post('/unlock-hero-stage', 'stage', { playerId: 'ann', hero: 'mage' })).toMatchObject({ body: { stage: 1 } })
  const player = (await (await fetch(`${url}/players/ann`)).json()) as { resources: { gold: number } }
  const gold = (opened.body as { loot: { name: string; amount: number }[] }).loot.reduce(
    (sum, { name, amount }) => sum + (name === 'gold' ? amount : 0),
    0,
  )
  expect(player.resources.gold).toBe(100 + gold - 5 - 10)
  expect(await game.kill('SIGINT')).toEqual({ code: 0, signal: null })
})

test('it survives its own chaos: inventory, resources and audit agree, and the loot is what was planned', async () => {
  const { code, output } = await runCommand(['node', 'scripts/example.ts', 'game', 'chaos'], { env: { GAME_ROUNDS: '5' } })
  expect(output).toContain('The books agree')
  expect(code).toBe(0)
}, 300_000)
