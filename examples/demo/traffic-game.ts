/**
 * The players: they open chests, clear dungeons, learn and unlock, by the commands of examples/game.
 */
import type { Traffic } from './traffic.ts'

const party = Array.from({ length: 12 }, (_none, n) => `player-${n}`)

export async function createPlayers(traffic: Traffic): Promise<void> {
  await Promise.all(
    party.map((playerId) =>
      traffic.insist({
        path: '/players',
        key: traffic.newKey(),
        who: { 'x-player': playerId },
        body: { playerId, name: playerId },
      }),
    ),
  )
}

/** One command of one player. Being refused for want of gold is part of the game. */
export async function playTurn(traffic: Traffic): Promise<void> {
  const playerId = traffic.pick(party)
  const moves: readonly (readonly [path: string, body: unknown])[] = [
    ['/use-item', { playerId, item: 'wooden-chest' }],
    ['/grant-items', { playerId, items: [{ name: 'wooden-chest', amount: 1, source: 'demo' }] }],
    ['/unlock-hero-stage', { playerId, hero: traffic.pick(['mage', 'knight']) }],
    ['/clear-dungeon', { dungeon: 'cave', party: [...new Set([playerId, traffic.pick(party)])] }],
  ]
  const [path, body] = traffic.pick(moves)
  await traffic.insist({ path, key: traffic.newKey(), who: { 'x-player': playerId }, body })
}
