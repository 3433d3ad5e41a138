/**
 * What players do. Each command decides in `plan`, once, and books through DistributeRewards.
 */
import { command, reject, type Random } from 'waybill'
import { z } from 'zod'
import { playerAggregate } from './players.ts'
import { distributeRewards, type Entry } from './rewards.ts'

const playerId = z.string().min(1)

export const createPlayer = command('CreatePlayer', {
  input: z.object({ playerId, name: z.string().min(1) }),
  aggregate: playerAggregate,
  store: 'response',
  plan: async (input, { child }) => ({
    ...input,
    start: await child(distributeRewards, {
      playerId: input.playerId,
      reason: 'start',
      entries: [
        { kind: 'resource', name: 'gold', amount: 100 },
        { kind: 'item', name: 'wooden-chest', amount: 5 },
      ],
    }),
  }),
  execute: async (tx, { playerId: id, name, start }, { run }) => {
    const { rows } = await tx.query('insert into player (id, name) values ($1, $2) on conflict do nothing returning id', [
      id,
      name,
    ])
    if (rows.length === 0) throw reject('player-exists', { playerId: id })
    await run(start)
    return { playerId: id }
  },
})

const lootTable: readonly { readonly weight: number; readonly entry: Pick<Entry, 'kind' | 'name'>; readonly most: number }[] = [
  { weight: 60, entry: { kind: 'resource', name: 'gold' }, most: 50 },
  { weight: 25, entry: { kind: 'item', name: 'potion' }, most: 3 },
  { weight: 10, entry: { kind: 'item', name: 'wooden-chest' }, most: 1 },
  { weight: 5, entry: { kind: 'resource', name: 'gem' }, most: 2 },
]

/** UseItem: opens a chest. What is in it is decided before the transaction, so that a retry cannot draw again. */
export const useItem = command('UseItem', {
  input: z.object({ playerId, item: z.literal('wooden-chest') }),
  aggregate: playerAggregate,
  store: 'response',
  plan: async ({ playerId: id, item }, { random, child }) => {
    const loot = Array.from({ length: 3 }, () => draw(random))
    const entries = [{ kind: 'item' as const, name: item, amount: -1 }, ...loot]
    return { loot, rewards: await child(distributeRewards, { playerId: id, reason: 'use-item', entries }) }
  },
  execute: async (_tx, { loot, rewards }, { run }) => {
    await run(rewards)
    return { loot }
  },
})

/** UnlockHeroStage: pays gold, raises the stage by one, and rewards every third stage with a gem. */
export const unlockHeroStage = command('UnlockHeroStage', {
  input: z.object({ playerId, hero: z.string().min(1) }),
  aggregate: playerAggregate,
  store: 'response',
  // Compared again under the lock: what was read here may be old by then.
  load: async (db, input) => {
    const { rows } = await db.query('select stage from hero_stage where player_id = $1 and hero = $2', [
      input.playerId,
      input.hero,
    ])
    return (rows[0] as { stage: number } | undefined)?.stage ?? 0
  },
  plan: async (input, { loaded, child }) => {
    const stage = loaded + 1
    const price: Entry = { kind: 'resource', name: 'gold', amount: -10 * stage, metadata: { hero: input.hero } }
    const prize: Entry[] =
      stage % 3 === 0 ? [{ kind: 'resource', name: 'gem', amount: 1, metadata: { stage: String(stage) } }] : []
    const rewards = await child(distributeRewards, {
      playerId: input.playerId,
      reason: 'unlock-stage',
      entries: [price, ...prize],
    })
    return { ...input, stage, rewards }
  },
  execute: async (tx, { playerId: id, hero, stage, rewards }, { run }) => {
    const { rows } = await tx.query(
      `insert into hero_stage (player_id, hero, stage) select $1, $2, 1 where $3::int = 1
       on conflict (player_id, hero) do nothing returning stage`,
      [id, hero, stage],
    )
    const raised = await tx.query('update hero_stage set stage = $3 where player_id = $1 and hero = $2 and stage = $3 - 1', [
      id,
      hero,
      stage,
    ])
    if (rows.length + raised.rowCount !== 1) throw reject('stage-moved-on', { hero, stage })
    await run(rewards)
    return { hero, stage }
  },
})

/** Teach: a hero learns a skill once. */
export const teach = command('Teach', {
  input: z.object({ playerId, hero: z.string().min(1), skill: z.string().min(1) }),
  aggregate: playerAggregate,
  storeRejections: true,
  plan: async (input, { child }) => ({
    ...input,
    price: await child(distributeRewards, {
      playerId: input.playerId,
      reason: 'teach',
      entries: [{ kind: 'resource', name: 'gold', amount: -5, metadata: { hero: input.hero, skill: input.skill } }],
    }),
  }),
  execute: async (tx, { playerId: id, hero, skill, price }, { run }) => {
    const known = await tx.query('insert into hero_skill (player_id, hero, skill) values ($1, $2, $3) on conflict do nothing', [
      id,
      hero,
      skill,
    ])
    if (known.rowCount === 0) throw reject('already-knows', { hero, skill })
    await run(price)
    return { hero, skill }
  },
})

/** ClearDungeon: everybody in the party is rewarded, in one transaction. */
export const clearDungeon = command('ClearDungeon', {
  input: z.object({ dungeon: z.string().min(1), party: z.array(playerId).min(1).max(8) }),
  plan: async ({ dungeon, party }, { random, child }) => {
    const rewards = []
    for (const id of party) {
      const entries = [{ ...draw(random), metadata: { dungeon } }]
      rewards.push(await child(distributeRewards, { playerId: id, reason: 'dungeon', entries }))
    }
    return rewards
  },
  execute: async (_tx, rewards, { run }) => {
    for (const each of rewards) await run(each)
    return { rewarded: rewards.length }
  },
})

function draw(random: Random): Entry {
  const total = lootTable.reduce((sum, { weight }) => sum + weight, 0)
  let at = random.next() * total
  const found = lootTable.find(({ weight }) => (at -= weight) < 0) ?? lootTable[0]
  if (found === undefined) throw new Error('The loot table is empty.')
  return { ...found.entry, amount: 1 + Math.floor(random.next() * found.most), metadata: {} }
}
