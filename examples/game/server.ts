/**
 * The game over HTTP: one route per command, one to read a player.
 *
 * Who asks is the header `x-player`, which stands for the session that a real game would check.
 */
import { fastify, type FastifyInstance, type FastifyRequest } from 'fastify'
import { createCommands, createOutbox, migrate, type Command, type CommandCache, type Database, type SignalBus } from 'waybill'
import { fastifyCommand } from 'waybill/fastify'
import { clearDungeon, createPlayer, teach, unlockHeroStage, useItem } from './player-commands.ts'
import { readPlayer } from './players.ts'
import { grantItems, grantToMany } from './rewards.ts'
import { gameTables } from './tables.ts'

export interface GameOptions {
  readonly db: Database
  readonly cache: CommandCache
  readonly signals: SignalBus
}

/** Makes what is missing in the database. */
export async function prepareGame(db: Database): Promise<void> {
  await migrate(db, { schema: 'waybill', service: 'game' })
  await db.query(gameTables)
}

export function createGame({ db, cache, signals }: GameOptions): FastifyInstance {
  const commands = createCommands({ db, cache, signals, outbox: createOutbox(), waitForWinnerMs: 1_000 })
  const app = fastify({ forceCloseConnections: true })
  const principal = (request: FastifyRequest): string | undefined => String(request.headers['x-player'] ?? '') || undefined
  const routes: Readonly<Record<string, Command>> = {
    '/players': createPlayer,
    '/use-item': useItem,
    '/grant-items': grantItems,
    '/grant-to-many': grantToMany,
    '/unlock-hero-stage': unlockHeroStage,
    '/teach': teach,
    '/clear-dungeon': clearDungeon,
  }
  for (const [path, command] of Object.entries(routes)) app.post(path, fastifyCommand(commands, command, { principal }))
  app.get<{ Params: { id: string } }>('/players/:id', async (request, reply) => {
    const player = await readPlayer(db, request.params.id)
    return player ?? reply.code(404).send({ title: 'There is no such player' })
  })
  return app
}
