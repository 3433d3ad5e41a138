/**
 * DistributeRewards: the one way in which a player gets or pays anything.
 *
 * Dungeons, hero stages, lessons and chests run it as a child, in their own transaction: what was given, the audit of it, and the
 * player's new version commit together or not at all. Entries are booked in the order given, each with its own metadata.
 */
import { bulk, command, reject, type Tx } from 'waybill'
import { z } from 'zod'
import { playerAggregate, players, readPlayer } from './players.ts'

export const entry = z.object({
  kind: z.enum(['item', 'resource']),
  name: z.string().min(1),
  /** Negative for what is paid. */
  amount: z.number().int(),
  metadata: z.record(z.string(), z.string()).default({}),
})

export type Entry = z.infer<typeof entry>

export const distributeRewards = command('DistributeRewards', {
  input: z.object({ playerId: z.string(), reason: z.string(), entries: z.array(entry).max(200) }),
  aggregate: playerAggregate,
  execute: async (tx, { playerId, reason, entries }, { requestId = 'none', now, emit }) => {
    for (const [place, each] of entries.entries()) {
      await book(tx, playerId, each)
      await tx.query(
        `insert into audit (player_id, request_id, reason, place, kind, name, amount, metadata, at)
         values ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9::text::timestamptz)`,
        [playerId, requestId, reason, place, each.kind, each.name, each.amount, JSON.stringify(each.metadata), now.toISOString()],
      )
    }
    const player = await readPlayer(tx, playerId)
    if (player === undefined) throw reject('no-such-player', { playerId })
    emit(players.PlayerChanged, playerId, player)
    return { booked: entries.length }
  },
})

/** GrantItems: items for one player, for support and events. */
export const grantItems = command('GrantItems', {
  input: z.object({
    playerId: z.string(),
    items: z.array(z.object({ name: z.string().min(1), amount: z.number().int().positive(), source: z.string() })).min(1),
  }),
  aggregate: playerAggregate,
  store: 'response',
  plan: ({ playerId, items }, { child, metadata }) =>
    child(distributeRewards, {
      playerId,
      reason: 'grant',
      entries: items.map(({ name, amount, source }) => ({
        kind: 'item' as const,
        name,
        amount,
        metadata: { source, ...texts(metadata) },
      })),
    }),
  execute: async (_tx, rewards, { run }) => await run(rewards),
})

/** The same for many players at once, all or none: a season's end. */
export const grantToMany = bulk('GrantToMany', grantItems, { store: 'response' })

/** Adds to or takes from what a player has; refuses to go below zero. */
async function book(tx: Tx, playerId: string, { kind, name, amount }: Entry): Promise<void> {
  const [table, column] = kind === 'item' ? ['inventory', 'item'] : ['resource', 'resource']
  const { rows } = await tx.query(`select amount from ${table} where player_id = $1 and ${column} = $2`, [playerId, name])
  const have = (rows[0] as { amount: number } | undefined)?.amount ?? 0
  if (have + amount < 0) throw reject('not-enough', { name, have, need: -amount })
  await tx.query(
    `insert into ${table} (player_id, ${column}, amount) values ($1, $2, $3)
     on conflict (player_id, ${column}) do update set amount = excluded.amount`,
    [playerId, name, have + amount],
  )
}

function texts(metadata: unknown): Record<string, string> {
  return typeof metadata === 'object' && metadata !== null ? (metadata as Record<string, string>) : {}
}
