/**
 * The stream of players, and what a player looks like from outside.
 */
import { state, stream, type Queryable } from 'waybill'
import { z } from 'zod'

export const playerState = z.object({
  name: z.string(),
  inventory: z.record(z.string(), z.number()),
  resources: z.record(z.string(), z.number()),
})

export type PlayerState = z.infer<typeof playerState>

export const players = stream('player', {
  topic: 'player.events',
  events: { PlayerChanged: state(playerState) },
})

/** The lock that every command of a player takes. */
export const playerAggregate = ({ playerId }: { readonly playerId: string }) => ({ type: players.aggregateType, id: playerId })

export async function readPlayer(db: Queryable, playerId: string): Promise<PlayerState | undefined> {
  const { rows } = await db.query(
    `select p.name,
            (select coalesce(jsonb_object_agg(item, amount), '{}') from inventory where player_id = p.id) as inventory,
            (select coalesce(jsonb_object_agg(resource, amount), '{}') from resource where player_id = p.id) as resources
       from player p where p.id = $1`,
    [playerId],
  )
  return rows[0] as PlayerState | undefined
}
