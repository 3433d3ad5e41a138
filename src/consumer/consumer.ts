/**
 * A consumer: applies the events of its streams to its own database, each effect once, versions never backwards.
 *
 *   receive ──▶ batch ──▶ one transaction: inbox · positions · projections · handlers · emitted events ──▶ COMMIT ──▶ ack
 *
 * Guarantee: an event's effect and its row in the inbox commit together, and the broker hears of it only after that. So a
 * crash anywhere brings the message again, and the inbox recognises it. See docs/guides/consumer.md.
 */
import type { EventKind } from '../core/event/event.ts'
import type { Service } from '../core/service/lifetime.ts'
import { createPulse, type Pulse } from '../core/service/heartbeat.ts'
import type { AnyStream, EventType } from '../core/event/stream.ts'
import { WaybillError } from '../core/errors.ts'
import { one } from '../postgres/query/database.ts'
import { assertSchema } from '../postgres/schema/deployment.ts'
import { assertFactTable, createFactTable, type InsertOptions } from '../projection/fact-table.ts'
import { createProjection, type Projection, type ProjectOptions } from '../projection/projection.ts'
import { assertProjectionTable } from '../projection/projection-table.ts'
import { ReadinessWatch, type Readiness } from '../projection/readiness.ts'
import { createReads, type Reads } from '../projection/reads.ts'
import { runConsumer, withBatchDeadlines } from './engine.ts'
import { resolveConsumerOptions, type ConsumerOptions, type ConsumerSettings } from './model/consumer-options.ts'
import type { ConsumerObserver } from './model/observer.ts'
import type { HandlerOf } from './model/handler.ts'
import type { Item } from './model/batch-item.ts'
import { inboxTables, registerConsumer } from './tables/inbox.sql.ts'
import { withRegistration } from './batch/readers.ts'
import { RouteBook, type Routes } from './model/routes.ts'

export interface Consumer<Native = unknown> extends Service {
  readonly settings: ConsumerSettings<Native>
  readonly lastPassAgeMs: () => number | undefined
  /** Calls `handler` once for each event of this type, in the transaction of its effect. */
  on<Type extends EventType<EventKind, never, unknown>>(type: Type, handler: HandlerOf<Type, Native>): Consumer<Native>
  /** Keeps a table of yours up to date with a stream, by versioned upserts. */
  project<S extends AnyStream>(stream: S, options: ProjectOptions<S>): Consumer<Native>
  /** Adds a row of yours for each event of a stream of facts; one that is there already stays as it is. */
  insert<S extends AnyStream>(stream: S, options: InsertOptions<S>): Consumer<Native>
  /** Resolves when the write that a token stands for is applied here; NOT_YET at the deadline. */
  readonly waitFor: Reads['waitFor']
  /** A projection's row that is not older than a token, or what the owner says instead. */
  readonly read: Reads['read']
  /** Whether the projections are complete and not too far behind. */
  readiness(): Promise<Readiness>
  /** What was registered, checked. After this nothing more can be registered. */
  routes(): Routes
}

export function createConsumer<Native>(options: ConsumerOptions<Native>): Consumer<Native> {
  const settings = resolveConsumerOptions(options)
  const book = new RouteBook(settings.name, settings.streams)
  const watched = createWatched(settings, () => book.projections)
  const consumer: Consumer<Native> = {
    name: `consumer ${settings.name}`,
    settings,
    lastPassAgeMs: watched.watch.pulse.ageMs,
    on: (type, handler) => {
      book.on(type, handler)
      return consumer
    },
    project: (stream, projectOptions) => {
      book.project(createProjection(stream, projectOptions))
      return consumer
    },
    insert: (stream, insertOptions) => {
      book.insert(createFactTable(stream, insertOptions))
      return consumer
    },
    waitFor: (token, waitOptions) => watched.reads.waitFor(token, waitOptions),
    read: (stream, aggregateId, readOptions) => watched.reads.read(stream, aggregateId, readOptions),
    readiness: () => watched.readiness.readiness(),
    routes: () => book.build(),
    run: async (life) => {
      const routes = book.build()
      const { schema, service, deploymentId, name } = settings
      // Nobody would hear of one that waits here: it does not run yet, and is not stuck.
      const db = withBatchDeadlines(settings)
      refuseMissingInbox(settings, routes)
      await assertSchema(db, { schema, service, deploymentId })
      for (const projection of routes.projections) await assertProjectionTable(db, projection)
      for (const factTable of routes.factTables) await assertFactTable(db, factTable)
      const tables = inboxTables(schema)
      const entry = await one(db, registerConsumer({ tables, consumer: name }))
      const { watch } = watched
      const scope = { tables, consumer: name, generation: entry.generation }
      await withRegistration({ settings: { ...settings, db }, scope, routes }, (readers) =>
        watch.pulse.during(() => runConsumer({ settings, routes, tables, registered: entry, life, readers, watch })),
      )
    },
  }
  return consumer
}

interface Watched {
  readonly reads: Reads
  readonly readiness: ReadinessWatch
  readonly watch: ConsumerObserver & { readonly pulse: Pulse }
}

/** Readers and readiness, and what they have to hear of a consumer that runs in this process. */
function createWatched({ name, ...settings }: ConsumerSettings, projections: () => readonly Projection[]): Watched {
  const reads = createReads({ ...settings, consumer: name, projections })
  const readiness = new ReadinessWatch({ ...settings, consumer: name })
  return {
    reads,
    readiness,
    watch: {
      pulse: createPulse(settings.clock),
      opening: () => readiness.opening(),
      opened: (isIdle) => readiness.opened(isIdle),
      closed: () => readiness.closed(),
      disturbed: (restMs) => readiness.disturbed(restMs),
      committed: (items) => {
        readiness.applied(Math.max(...items.map(({ event }) => event.occurredAtMs)))
        reads.committed(eventsOf(items))
      },
    },
  }
}

/** One after the other, as far as anybody wants them: usually nobody waits. */
function* eventsOf(items: readonly Item[]): Iterable<Item['event']> {
  for (const { event } of items) yield event
}

/** Without an inbox a handler's event is known by its place in the log and by its version, where those grow together. */
function refuseMissingInbox({ name, inbox, offsets }: ConsumerSettings, routes: Routes): void {
  if (inbox || !routes.hasHandlers) return
  if (offsets === 'broker')
    throw new WaybillError(
      'INVALID_OPTION',
      `consumer ${name}: inbox: false is for consumers whose only effects are project(…) and insert(…); a handler would run again for every duplicate. With offsets: 'postgres' it would not.`,
    )
  const withoutKey = routes.handledTypes.filter((type) => routes.stream(type)?.stream.ordering === 'version')
  if (withoutKey.length > 0)
    throw new WaybillError(
      'INVALID_OPTION',
      `consumer ${name}: with inbox: false a handler passes over what is older than the last event of its aggregate, and ordering: 'version' of ${withoutKey.join(', ')} spreads an aggregate over all partitions. Leave out inbox: false, or give the stream ordering: 'aggregate' or 'lane'.`,
    )
}
