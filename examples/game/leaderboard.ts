/**
 * The leaderboard: a second service, with a database of its own, that follows the players by their events.
 *
 * It asks the game for nothing: what it shows is what the last event of each player said.
 */
import { createConsumer, migrate, type Consumer, type ConsumerOptions, type Database, type Queryable } from 'waybill'
import { players } from './players.ts'

/** Makes what is missing in the database. */
export async function prepareLeaderboard(db: Database): Promise<void> {
  await migrate(db, { schema: 'waybill', service: 'leaderboard' })
  await db.query(`
    create table if not exists standing (
      player_id  text primary key,
      name       text,
      gold       int,
      version    bigint not null,
      deleted_at timestamptz
    )`)
}

export function createLeaderboard(options: Omit<ConsumerOptions, 'name' | 'streams'>): Consumer {
  const leaderboard = createConsumer({ ...options, name: 'leaderboard', streams: [players] })
  return leaderboard.project(players, {
    table: 'public.standing',
    key: 'player_id',
    set: ({ data }) => ({ name: data.name, gold: data.resources['gold'] ?? 0 }),
  })
}

/** The richest first. */
export async function readStandings(db: Queryable): Promise<readonly unknown[]> {
  const { rows } = await db.query(
    'select name, gold, version::text from standing where deleted_at is null order by gold desc, name limit 10',
  )
  return rows
}
