import { expect, test } from 'vitest'
import { consumerFixture, published, videos } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { connect } from '../postgres/connect.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { eventually } from '../testing/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const application = 'fails over'

/** Cuts the consumer's connections. Those that it makes lead to a server that takes writes or not, as an address after a failover. */
async function failOver(takesWrites: boolean): Promise<void> {
  await database.pool.query(
    `begin; set transaction read write; alter database ${database.name} set default_transaction_read_only = ${takesWrites ? 'off' : 'on'}; commit`,
  )
  if (takesWrites) return
  await database.pool.query(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = '${application}'`)
}

test.each(['direct', 'stored'] as const)(
  'a server that takes no writes charges nobody, and the consumer goes on when it is led to one that does (%s)',
  async (mode) => {
    const fixture = await consumerFixture(db)
    const url = new URL(database.directUrl)
    url.searchParams.set('application_name', application)
    const own = connect({ url: url.href, max: 1 })
    const consumer = fixture
      .consumer({ db: own, mode, maxAttempts: 2, streams: [videos] })
      .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
    const stop = fixture.start(consumer)
    await fixture.publish(published('a', 1))
    await eventually(async () => (await fixture.count('video_view')) === 1)
    await failOver(false)
    await fixture.publish(published('a', 2), published('b', 1))
    const told = (): number => fixture.heard('consumer.retried').length + fixture.heard('consumer.disturbed').length
    await eventually(() => told() >= 3)
    await failOver(true)
    await eventually(async () => (await fixture.count('video_view')) === 2)
    await stop()
    await own.close()
    expect(await fixture.count('dead_letter')).toBe(0)
    expect(fixture.heard('consumer.failed')).toEqual([])
  },
)
