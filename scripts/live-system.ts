/**
 * A small system that lives on embedded parts: a video service writes and publishes, a catalog follows over Pub/Sub.
 *
 * The broker has a bad day on purpose: it duplicates, loses acknowledgements and reports failures that were none. The counts
 * show what became of it: every committed event is applied, once, and no row ever goes back to an older version.
 */
import { state } from '../src/core/event.ts'
import { run } from '../src/core/lifetime.ts'
import { randomInt, seededRandom } from '../src/core/random.ts'
import { stream } from '../src/core/stream.ts'
import type { StandardSchema } from '../src/core/standard-schema.ts'
import { createConsumer } from '../src/consumer/consumer.ts'
import { createOutbox } from '../src/outbox/outbox.ts'
import { createRelay } from '../src/outbox/relay.ts'
import { applyProvision, planProvision } from '../src/ops/provision.ts'
import { desiredResources } from '../src/ops/provision-desired.ts'
import { connect, type Connection } from '../src/postgres/connect.ts'
import { migrate } from '../src/postgres/migrate.ts'
import { transaction } from '../src/postgres/transaction.ts'
import type { PubsubServer } from '../src/pubsub-server/pubsub-server.ts'
import { createPubsubAdmin } from '../src/transport/pubsub-admin.ts'
import { pubsub } from '../src/transport/pubsub.ts'

export interface Counts {
  readonly committed: number
  readonly published: number
  readonly applied: number
  /** Effects beyond the first, of any event. */
  readonly doubled: number
  /** Times that a row was seen to go back to an older version. */
  readonly wentBack: number
  /** Rows of the catalog that differ from the owner's. Not zero while events are on their way. */
  readonly different: number
}

export interface LiveSystem {
  counts(): Promise<Counts>
  /** Ends the writing, waits until everything has arrived or `patienceMs` is over, and stops. */
  finish(patienceMs: number): Promise<Counts>
}

export interface LiveSystemParts {
  readonly videoUrl: string
  readonly catalogUrl: string
  readonly server: PubsubServer
}

interface Title {
  readonly title: string
}
const titleSchema: StandardSchema<Title> = {
  '~standard': { version: 1, vendor: 'demo', validate: (value) => ({ value: value as Title }) },
}
const videos = stream('video', { topic: 'video.events', events: { VideoPublished: state(titleSchema) } })
const projectId = 'demo'
const titles = 40

export async function startLiveSystem({ videoUrl, catalogUrl, server }: LiveSystemParts): Promise<LiveSystem> {
  const video = connect({ url: videoUrl })
  const catalog = connect({ url: catalogUrl })
  await prepare(video, catalog, server.emulatorHost)
  const outbox = createOutbox()
  const transport = pubsub({ projectId, emulatorHost: server.emulatorHost })
  const relay = createRelay({ db: video, outbox, transport, streams: [videos] })
  const consumer = createConsumer({ db: catalog, transport, name: 'catalog', streams: [videos] })
  consumer.project(videos, { table: 'public.catalog', key: 'video_id', set: (event) => ({ title: event.data.title }) })
  consumer.on(videos.VideoPublished, async (event, { tx }) => {
    await tx.query('insert into effect (event_id) values ($1::text::uuid)', [event.id])
  })
  const stop = new AbortController()
  const running = run([relay, consumer], { signal: stop.signal })
  const writing = new AbortController()
  const written = write(video, outbox, writing.signal)
  server.faults.set({ duplicate: 0.05, dropAcks: 0.02, publishError: 0.02 })
  const counts = countsOf(video, catalog)
  return {
    counts,
    finish: async (patienceMs) => {
      writing.abort()
      await written
      const deadline = performance.now() + patienceMs
      let last = await counts()
      while ((last.applied < last.committed || last.different > 0) && performance.now() < deadline) last = await counts()
      stop.abort()
      await running
      await transport.close()
      await Promise.all([video.close(), catalog.close()])
      return last
    },
  }
}

async function prepare(video: Connection, catalog: Connection, emulatorHost: string): Promise<void> {
  await migrate(video, { schema: 'waybill', service: 'video' })
  await migrate(catalog, { schema: 'waybill', service: 'catalog' })
  await video.query('create table video (id text primary key, title text not null, version bigint not null)')
  await catalog.query(
    'create table catalog (video_id text primary key, title text, version bigint not null, deleted_at timestamptz)',
  )
  await catalog.query('create table effect (event_id uuid not null)')
  const admin = createPubsubAdmin({ projectId, emulatorHost })
  const desired = desiredResources({ streams: [videos], consumers: [{ name: 'catalog', streams: [videos] }] })
  await applyProvision(admin, await planProvision(admin, desired))
  await admin.close()
}

/** Changes one title after the other, each with its event in one transaction. */
async function write(db: Connection, outbox: ReturnType<typeof createOutbox>, signal: AbortSignal): Promise<void> {
  const random = seededRandom('live system')
  for (let n = 1; !signal.aborted; n += 1) {
    const id = `video-${randomInt(random, 1, titles)}`
    const title = `take ${n}`
    await transaction(db, async (tx) => {
      const { version } = await outbox.add(tx, videos.VideoPublished, id, { title })
      await tx.query(
        `insert into video (id, title, version) values ($1, $2, $3::text::bigint)
         on conflict (id) do update set title = excluded.title, version = excluded.version`,
        [id, title, String(version)],
      )
    })
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

function countsOf(video: Connection, catalog: Connection): () => Promise<Counts> {
  const seen = new Map<string, bigint>()
  let wentBack = 0
  return async () => {
    const owner = await video.query(
      `select (select count(*) from waybill.outbox)::int as committed, (select count(*) from waybill.outbox_receipt)::int as published,
              (select coalesce(json_object_agg(id, version::text), '{}') from video) as versions`,
    )
    const reader = await catalog.query(
      `select count(*)::int as effects, count(distinct event_id)::int as applied,
              (select coalesce(json_object_agg(video_id, version::text), '{}') from catalog) as versions from effect`,
    )
    const { committed, published, versions } = owner.rows[0] as {
      committed: number
      published: number
      versions: Record<string, string>
    }
    const {
      effects,
      applied,
      versions: read,
    } = reader.rows[0] as { effects: number; applied: number; versions: Record<string, string> }
    for (const [id, version] of Object.entries(read)) {
      if (BigInt(version) < (seen.get(id) ?? 0n)) wentBack += 1
      seen.set(id, BigInt(version))
    }
    const different = Object.entries(versions).filter(([id, version]) => read[id] !== version).length
    return { committed, published, applied, doubled: effects - applied, wentBack, different }
  }
}
