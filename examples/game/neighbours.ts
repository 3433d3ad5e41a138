/**
 * What stands beside the game when it runs all by itself: a broker, the relay that publishes the game's events, and the
 * leaderboard with a database of its own.
 */
import { connect, createOutbox, createRelay, type Database, type Service, type SignalBus } from 'waybill'
import { applyProvision, createPubsubAdmin, desiredResources, planProvision, pubsub } from 'waybill/pubsub'
import { startPubsubServer } from 'waybill/testing'
import { createLeaderboard, prepareLeaderboard, readStandings } from './leaderboard.ts'
import { players } from './players.ts'

export interface Neighbours {
  readonly services: readonly Service[]
  readonly emulatorHost: string
  standings(): Promise<readonly unknown[]>
  close(): Promise<void>
}

export interface NeighboursOptions {
  readonly game: Database
  readonly leaderboardUrl: string
  readonly signals: SignalBus
}

export async function startNeighbours({ game, leaderboardUrl, signals }: NeighboursOptions): Promise<Neighbours> {
  const server = await startPubsubServer()
  const { emulatorHost } = server
  const admin = createPubsubAdmin({ projectId: 'game', emulatorHost })
  const desired = desiredResources({ streams: [players], consumers: [{ name: 'leaderboard', streams: [players] }] })
  await applyProvision(admin, await planProvision(admin, desired))
  await admin.close()

  const db = connect({ url: leaderboardUrl, signals })
  await prepareLeaderboard(db)
  const transport = pubsub({ projectId: 'game', emulatorHost })
  const relay = createRelay({ db: game, outbox: createOutbox(), transport, streams: [players], service: 'game', signals })
  return {
    services: [relay, createLeaderboard({ db, transport, service: 'leaderboard', signals })],
    emulatorHost,
    standings: () => readStandings(db),
    close: async () => {
      await transport.close()
      await db.close()
      await server.stop()
    },
  }
}
