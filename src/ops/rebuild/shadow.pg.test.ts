import { expect, test } from 'vitest'
import { consumerFixture, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { createShadows, shadowsOf, swapNames, type Shadow } from './shadow.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** `anon` is who default privileges give everything to; `member` is no superuser and has the rights of `owner`. */
interface World extends ConsumerFixture {
  readonly anon: string
  readonly owner: string
  readonly member: string
  readonly shadows: readonly Shadow[]
  /** Runs it as the member. */
  as(step: typeof createShadows): Promise<void>
}

async function inWorld(act: (world: World) => Promise<void>): Promise<void> {
  const [anon, owner, member] = ['anon', 'owner', 'member'].map((role) => `${database.name}_${role}`) as [string, string, string]
  const fixture = await consumerFixture(db)
  const { schema, query } = fixture
  const catalog = fixture
    .consumer()
    .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
  const shadows = shadowsOf(catalog.routes(), 2)
  await query(`create role ${anon}; create role ${owner}; create role ${member} in role ${owner}`)
  await query(`grant usage, create on schema $schema to ${owner}`)
  await query(`alter default privileges for role ${member} grant all on tables to ${anon}, public`)
  await query(`revoke all on $schema.video_view from public; alter table $schema.video_view owner to ${owner}`)
  const as: World['as'] = (step) =>
    transaction(db, async (tx) => {
      await tx.query(`set local role ${member}`)
      await step(tx, shadows)
    })
  try {
    await act({ ...fixture, anon, owner, member, shadows, as })
  } finally {
    await query('drop schema $schema cascade')
    for (const role of [anon, owner, member]) await query(`drop owned by ${role}`)
    for (const role of [anon, owner, member]) await query(`drop role ${role}`)
  }
}

/** Who may do what, whether rows are guarded, and how the table is stored. */
async function accessOf({ query }: World, table = 'video_view'): Promise<unknown> {
  const [found] = await query(
    `select c.relrowsecurity as guarded, c.relforcerowsecurity as forced, c.reloptions as options, t.reloptions as toast_options,
            pg_get_userbyid(c.relowner) as owner,
            (select array_agg(x order by x) from (
               select format('%s %s %s', coalesce(nullif(a.grantee, 0)::regrole::text, 'public'), a.privilege_type, a.is_grantable) as x
                 from aclexplode(c.relacl) a where a.grantee <> c.relowner
               union all
               select format('%s %s(%s) %s', coalesce(nullif(a.grantee, 0)::regrole::text, 'public'), a.privilege_type, k.attname, a.is_grantable)
                 from pg_attribute k, aclexplode(k.attacl) a where k.attrelid = c.oid) g) as granted
       from pg_class c left join pg_class t on t.oid = c.reltoastrelid where c.oid = '$schema.${table}'::regclass`,
  )
  return found
}

test('a shadow is open to nobody to whom the live table is not: owner, row level security, storage and grants are the same', async () => {
  await inWorld(async (world) => {
    const { query, anon, owner, member, as, schema } = world
    await query(`grant select (title) on $schema.video_view to ${anon} with grant option`)
    await query(`grant select, insert, update on $schema.video_view to ${member}`)
    await query(`alter table $schema.video_view enable row level security`)
    await query(`alter table $schema.video_view set (fillfactor = 70, toast.autovacuum_enabled = false)`)
    const before = await accessOf(world)
    expect(before).toMatchObject({
      guarded: true,
      forced: false,
      options: ['fillfactor=70'],
      toast_options: ['autovacuum_enabled=false'],
      owner,
      granted: [`${anon} SELECT(title) t`, `${member} INSERT f`, `${member} SELECT f`, `${member} UPDATE f`],
    })
    await as(createShadows)
    expect(await accessOf(world, 'video_view_g2')).toEqual(before)
    await as(async (tx) => {
      await tx.query(`insert into ${schema}.video_view_g2 (video_id, title, version) values ('v1', 'one', 1)`)
    })
    await as(swapNames)
    expect(await accessOf(world)).toEqual(before)
    expect(await query('select title from $schema.video_view')).toEqual([{ title: 'one' }])
  })
})

test('what was taken from the live table while it was rebuilt does not come back, and what came to hang on it is not lost', async () => {
  await inWorld(async (world) => {
    const { query, anon, as } = world
    await query(`grant select on $schema.video_view to ${anon}`)
    await as(createShadows)
    await query(`revoke all on $schema.video_view from ${anon}`)
    await query(`alter table $schema.video_view enable row level security, force row level security`)
    await query(`create policy own on $schema.video_view using (true)`)
    await expect(as(swapNames)).rejects.toThrow(/policy own/)
    await query(`drop policy own on $schema.video_view`)
    await as(swapNames)
    expect(await accessOf(world)).toMatchObject({ guarded: true, forced: true, granted: null })
  })
})

test.each([
  ['full', { kind: 'f', by_title: null }],
  ['nothing', { kind: 'n', by_title: null }],
  ['using index by_title', { kind: 'i', by_title: true }],
])('readers of its changes are told as much of a row after a swap: replica identity %s', async (identity, expected) => {
  await inWorld(async ({ query, as }) => {
    const identityOf = async (table: string): Promise<unknown> =>
      (
        await query(
          `select c.relreplident as kind,
                  (select pg_get_indexdef(i.indexrelid) like '% (title)' from pg_index i where i.indrelid = c.oid and i.indisreplident) as by_title
             from pg_class c where c.oid = '$schema.${table}'::regclass`,
        )
      )[0]
    // Of the same columns twice, and first by name one that cannot tell rows apart at every moment.
    await query(`alter table $schema.video_view alter column title set not null, add constraint a_late unique (title) deferrable`)
    await query(`create unique index by_title on $schema.video_view (title)`)
    await query(`alter table $schema.video_view replica identity ${identity}`)
    await as(createShadows)
    expect(await identityOf('video_view_g2')).toEqual(expected)
    await as(swapNames)
    expect(await identityOf('video_view')).toEqual(expected)
  })
})

test('a replica identity that was changed while the table was rebuilt is taken over by the swap', async () => {
  await inWorld(async ({ query, as }) => {
    await query(`alter table $schema.video_view replica identity full`)
    await as(createShadows)
    await query(`alter table $schema.video_view replica identity default`)
    await as(swapNames)
    expect(await query(`select relreplident as kind from pg_class where oid = '$schema.video_view'::regclass`)).toEqual([
      { kind: 'd' },
    ])
  })
})
