/**
 * A small live system with its metrics served: writers and commands, a relay that can be stopped, a consumer that dies on poison.
 */
import { z } from 'zod'
import { command } from '../../src/command/model/command.ts'
import { createCommands } from '../../src/command/commands.ts'
import { createMarkerCleanup } from '../../src/command/marker-cleanup.ts'
import { run } from '../../src/core/service/lifetime.ts'
import { createBacklogReport } from '../../src/outbox/backlog/report.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { startTelemetryServer } from '../../src/telemetry/telemetry-server.ts'
import { consumerFixture, videos, type ConsumerFixture } from '../setup/consumer-fixture.ts'

export interface LiveServices {
  readonly fixture: ConsumerFixture
  /** Where the metrics are. */
  readonly url: string
  /** Publishes a video by a command; one titled `poison` is never applied. */
  publish(id: string, title: string): Promise<void>
  startRelay(): void
  stopRelay(): Promise<void>
  stop(): Promise<void>
}

export async function startLiveServices(db: Database): Promise<LiveServices> {
  const fixture = await consumerFixture(db)
  const { schema, broker, signals, outbox } = fixture
  const metrics = createMetrics({ signals })
  const server = await startTelemetryServer({ metrics })
  const publishVideo = command('PublishVideo', {
    input: z.object({ id: z.string(), title: z.string() }),
    store: 'response',
    plan: (input) => input,
    execute: async (_tx, { id, title }, { emit }) => emit(videos.VideoPublished, id, { title }),
  })
  const commands = createCommands({ db, outbox, schema, signals })
  const catalog = fixture.consumer({ maxAttempts: 2 })
  catalog.project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (event) => ({ title: event.data.title }) })
  catalog.on(videos.VideoPublished, (event) => {
    if (event.data.title === 'poison') throw new Error('This title cannot be shown.')
  })
  const report = createBacklogReport({ db, outbox, signals, everyMs: 250 })
  const cleanup = createMarkerCleanup({ db, schema, signals })
  const stopAll = new AbortController()
  const running = run([catalog, report, cleanup], { signal: stopAll.signal, signals })
  let relay: { readonly stop: AbortController; readonly running: Promise<void> } | undefined
  let requests = 0
  const stopRelay = async (): Promise<void> => {
    relay?.stop.abort()
    await relay?.running
    relay = undefined
  }
  return {
    fixture,
    url: server.url,
    publish: async (id, title) => {
      const request = { principal: 'ann', requestId: `request-${(requests += 1)}`, input: { id, title } }
      const outcome = await commands.run(publishVideo, request)
      if (outcome.status !== 'executed') throw new Error(`The command ended as ${outcome.status}.`)
    },
    startRelay: () => {
      const stop = new AbortController()
      const service = createRelay({ db, outbox, transport: broker, signals })
      relay = { stop, running: run([service], { signal: stop.signal, signals }) }
    },
    stopRelay,
    stop: async () => {
      await stopRelay()
      stopAll.abort()
      await running
      await server.close()
    },
  }
}
