/**
 * What a consumer does with each event: its handlers and projections by stream and type, checked when they are registered.
 *
 * A stream is `sequential` for a consumer that handles one of its deltas: then versions are taken one after the other.
 * Otherwise order does not matter to the outcome, because states carry everything and versions are compared.
 */
import { WaybillError } from '../../core/errors.ts'
import type { EventKind } from '../../core/event/event.ts'
import { nearest } from '../../core/options.ts'
import type { AnyStream, EventType } from '../../core/event/stream.ts'
import type { FactTable } from '../../projection/fact-table.ts'
import type { Projection } from '../../projection/projection.ts'
import type { AnyHandler } from './handler.ts'

/** What is done with one type of event. */
export interface Route {
  readonly type: EventType<EventKind, never, unknown>
  readonly kind: EventKind
  readonly handler: AnyHandler | undefined
  readonly projections: readonly Projection[]
  readonly factTables: readonly FactTable[]
}

/** Whether events of this type become rows of the user's tables without a handler. */
export function writesRow({ projections, factTables }: Pick<Route, 'projections' | 'factTables'>): boolean {
  return projections.length > 0 || factTables.length > 0
}

/** What this process does not know of an event. */
export type Unknown = 'stream' | 'type'

/** A stream as this consumer sees it. */
export interface StreamRoutes {
  readonly stream: AnyStream
  readonly sequential: boolean
  route(eventType: string): Route | undefined
}

/** Whether an event stands for everything before it: a handled state or tombstone. */
export function standsForAll({ kind, handler, ...rows }: Route): boolean {
  return kind !== 'delta' && (handler !== undefined || writesRow(rows))
}

export interface Routes {
  readonly consumer: string
  readonly topics: readonly string[]
  /** The streams, by the types of their aggregates. */
  readonly types: readonly string[]
  /** Every event type of these streams. */
  readonly known: readonly { readonly aggregateType: string; readonly eventType: string }[]
  readonly sequentialTypes: readonly string[]
  /** The events of sequential streams that stand for everything before them. */
  readonly standing: readonly { readonly aggregateType: string; readonly eventType: string }[]
  /** The streams that have a handler. */
  readonly handledTypes: readonly string[]
  readonly projections: readonly Projection[]
  readonly factTables: readonly FactTable[]
  readonly hasHandlers: boolean
  /** Some payloads may only refer to their data. */
  readonly hasReferences: boolean
  stream(aggregateType: string): StreamRoutes | undefined
}

/** Collects registrations; `build` freezes them when the consumer starts. */
export class RouteBook {
  readonly #consumer: string
  readonly #streams = new Map<string, AnyStream>()
  readonly #handlers = new Map<EventType<EventKind, never, unknown>, AnyHandler>()
  readonly #projections: Projection[] = []
  readonly #factTables: FactTable[] = []
  #built: Routes | undefined

  constructor(consumer: string, streams: readonly AnyStream[]) {
    this.#consumer = consumer
    for (const stream of streams) {
      if (this.#streams.has(stream.aggregateType))
        throw invalid(`consumer ${consumer}: stream ${stream.aggregateType} is listed twice.`)
      this.#streams.set(stream.aggregateType, stream)
    }
  }

  on(type: EventType<EventKind, never, unknown>, handler: AnyHandler): void {
    this.#refuseLate('on')
    const known = this.#known(type)
    if (typeof handler !== 'function')
      throw invalid(`consumer ${this.#consumer}: the handler of ${type.name} must be a function.`)
    if (this.#handlers.has(known))
      throw invalid(`consumer ${this.#consumer}: ${type.name} of stream ${type.stream.aggregateType} has a handler already.`)
    this.#handlers.set(known, handler)
  }

  project(projection: Projection): void {
    this.#refuseLate('project')
    this.#checkTable(projection)
    this.#projections.push(projection)
  }

  insert(factTable: FactTable): void {
    this.#refuseLate('insert')
    this.#checkTable(factTable)
    this.#factTables.push(factTable)
  }

  /** Those that are registered so far. */
  get projections(): readonly Projection[] {
    return this.#projections
  }

  build(): Routes {
    if (this.#handlers.size + this.#projections.length + this.#factTables.length === 0)
      throw invalid(
        `consumer ${this.#consumer}: it does nothing. Register a handler with on(…) or a table with project(…) or insert(…) before it runs.`,
      )
    this.#built ??= this.#freeze()
    return this.#built
  }

  #freeze(): Routes {
    const byType = new Map<string, StreamRoutes>()
    for (const stream of this.#streams.values()) byType.set(stream.aggregateType, this.#streamRoutes(stream))
    return {
      consumer: this.#consumer,
      topics: [...new Set([...this.#streams.values()].map(({ topic }) => topic))],
      types: [...byType.keys()],
      known: [...this.#streams.values()].flatMap(({ aggregateType, events }) =>
        Object.values(events).map(({ name }) => ({ aggregateType, eventType: name })),
      ),
      standing: [...byType.values()].filter(({ sequential }) => sequential).flatMap(standingOf),
      sequentialTypes: [...byType.values()].filter(({ sequential }) => sequential).map(({ stream }) => stream.aggregateType),
      handledTypes: [...new Set([...this.#handlers.keys()].map((type) => type.stream.aggregateType))],
      projections: this.#projections,
      factTables: this.#factTables,
      hasHandlers: this.#handlers.size > 0,
      hasReferences: [...this.#streams.values()].some(({ events }) =>
        Object.values(events).some(({ codec }) => codec.sizeOf !== undefined),
      ),
      stream: (aggregateType) => byType.get(aggregateType),
    }
  }

  #streamRoutes(stream: AnyStream): StreamRoutes {
    const projections = this.#projections.filter((projection) => projection.stream === stream)
    const factTables = this.#factTables.filter((factTable) => factTable.stream === stream)
    const routes = new Map<string, Route>()
    for (const type of Object.values(stream.events))
      routes.set(type.name, { type, kind: type.kind, handler: this.#handlers.get(type), projections, factTables })
    const sequential = [...routes.values()].some(({ kind, handler }) => kind === 'delta' && handler !== undefined)
    return { stream, sequential, route: (eventType) => routes.get(eventType) }
  }

  #checkTable({ stream, table }: Pick<Projection, 'stream' | 'table'>): void {
    if (this.#streams.get(stream.aggregateType) !== stream)
      throw unknown(`consumer ${this.#consumer}: stream ${stream.aggregateType} is not among its streams. Add it to \`streams\`.`)
    if ([...this.#projections, ...this.#factTables].some((other) => other.table.quoted === table.quoted))
      throw invalid(`consumer ${this.#consumer}: ${table.quoted} is written by another project(…) or insert(…) already.`)
  }

  #known(type: EventType<EventKind, never, unknown>): EventType<EventKind, never, unknown> {
    const aggregateType = (type as Partial<EventType> | undefined)?.stream?.aggregateType
    if (aggregateType === undefined)
      throw unknown(`consumer ${this.#consumer}: on(…) takes an event type, such as videos.VideoPublished.`)
    const stream = this.#streams.get(aggregateType)
    const known = stream?.events[type.name]
    if (stream === undefined || known === undefined) {
      const near = nearest(type.name, Object.keys(stream?.events ?? {}))
      throw unknown(
        `consumer ${this.#consumer}: ${type.name} of stream ${aggregateType} is not among its streams. Add the stream to \`streams\`.${near === undefined ? '' : ` Did you mean ${near}?`}`,
      )
    }
    return known
  }

  #refuseLate(what: string): void {
    if (this.#built !== undefined)
      throw new WaybillError(
        'REFUSED',
        `consumer ${this.#consumer}: ${what}(…) was called after it was started. Register everything first.`,
      )
  }
}

function standingOf(routes: StreamRoutes): Routes['standing'] {
  const { aggregateType, events } = routes.stream
  return Object.values(events).flatMap(({ name }) => {
    const route = routes.route(name)
    return route !== undefined && standsForAll(route) ? { aggregateType, eventType: name } : []
  })
}

function invalid(message: string): WaybillError {
  return new WaybillError('INVALID_OPTION', message)
}

function unknown(message: string): WaybillError {
  return new WaybillError('UNKNOWN_NAME', message)
}
