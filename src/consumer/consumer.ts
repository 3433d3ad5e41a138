/**
 * A consumer: applies the events of its streams to its own database, each effect once, versions never backwards.
 *
 *   receive ──▶ batch ──▶ one transaction: inbox · positions · projections · handlers · emitted events ──▶ COMMIT ──▶ ack
 *
 * Guarantee: an event's effect and its row in the inbox commit together, and the broker hears of it only after that. So a
 * crash anywhere brings the message again, and the inbox recognises it. See docs/guides/consumer.md.
 */
import type { EventKind } from '../core/event.ts'
import type { Service } from '../core/lifetime.ts'
import type { AnyStream, EventType } from '../core/stream.ts'
import { WaybillError } from '../core/errors.ts'
import { one } from '../postgres/database.ts'
import { assertSchema } from '../postgres/deployment.ts'
import { createProjection, type ProjectOptions } from '../projection/projection.ts'
import { assertProjectionTable } from '../projection/projection-table.ts'
import { runConsumer } from './consumer-engine.ts'
import { resolveConsumerOptions, type ConsumerOptions, type ConsumerSettings } from './consumer-options.ts'
import type { HandlerOf } from './handler.ts'
import { inboxTables, registerConsumer } from './inbox.sql.ts'
import { RouteBook, type Routes } from './routes.ts'

export interface Consumer<Native = unknown> extends Service {
  readonly settings: ConsumerSettings<Native>
  /** Calls `handler` once for each event of this type, in the transaction of its effect. */
  on<Type extends EventType<EventKind, never, unknown>>(type: Type, handler: HandlerOf<Type, Native>): Consumer<Native>
  /** Keeps a table of yours up to date with a stream, by versioned upserts. */
  project<S extends AnyStream>(stream: S, options: ProjectOptions<S>): Consumer<Native>
  /** What was registered, checked. After this nothing more can be registered. */
  routes(): Routes
}

export function createConsumer<Native>(options: ConsumerOptions<Native>): Consumer<Native> {
  const settings = resolveConsumerOptions(options)
  const book = new RouteBook(settings.name, settings.streams)
  const consumer: Consumer<Native> = {
    name: `consumer ${settings.name}`,
    settings,
    on: (type, handler) => {
      book.on(type, handler)
      return consumer
    },
    project: (stream, projectOptions) => {
      book.project(createProjection(stream, projectOptions))
      return consumer
    },
    routes: () => book.build(),
    run: async (life) => {
      const routes = book.build()
      const { db, schema, service, name } = settings
      if (!settings.inbox && routes.hasHandlers) throw needsInbox(name)
      await assertSchema(db, { schema, service })
      for (const projection of routes.projections) await assertProjectionTable(db, projection)
      const tables = inboxTables(schema)
      const registered = await one(db, registerConsumer({ tables, consumer: name }))
      await runConsumer({ settings, routes, tables, registered, life })
    },
  }
  return consumer
}

function needsInbox(name: string): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    `consumer ${name}: inbox: false is for consumers whose only effect is project(…); a handler would run again for every duplicate.`,
  )
}
