/**
 * `waybill relay`: a relay as a process of its own, with retention beside it; or, with `--once`, as a job that drains and
 * exits. The first SIGTERM finishes the batch in hand and gives the lanes back.
 */
import { errorMessage } from '../core/errors.ts'
import { run } from '../core/lifetime.ts'
import { createSignals, type SignalBus } from '../core/signals.ts'
import { createHealth } from '../ops/health.ts'
import { withDatabase } from '../ops/with-database.ts'
import { createOutbox } from '../outbox/outbox.ts'
import { createRelay } from '../outbox/relay.ts'
import { createOutboxRetention } from '../outbox/retention.ts'
import { assertSchema } from '../postgres/deployment.ts'
import type { Command } from './command.ts'
import { databaseOptions } from './settings.ts'
import { createTelemetry, telemetryOptions } from './telemetry-options.ts'

/** Pass, renewal, watch and retention each need one at times. */
const connections = 5

export const relayCommand: Command = {
  summary: 'Publish committed events until stopped, beside any number of other relays',
  details: [
    'Transport, streams, relay and retention come from waybill.config.ts. The first SIGTERM or SIGINT finishes what is in',
    'hand and gives the lanes to the others.',
  ],
  options: {
    ...databaseOptions,
    once: { type: 'boolean', help: 'publish what is due, then exit' },
    ...telemetryOptions,
  },
  async run({ values, settings, stopSignal, note }) {
    const names = settings.names()
    const { schema, service } = names
    const configured = settings.relay()
    const signal = stopSignal()
    const signals = createSignals()
    let published = 0
    signals.on('relay.published', ({ count }) => void (published += count))
    const telemetry = createTelemetry(values, signals, note)
    if (!telemetry.isLogging) tell(signals, note)
    return await withDatabase(
      settings.databaseUrl(),
      async (db) => {
        await assertSchema(db, names)
        const outbox = createOutbox({ schema })
        const transport = await configured.transport({ db, schema })
        try {
          const { streams, relay: options, retention } = configured
          const relay = createRelay({ ...options, db, outbox, transport, streams, service, signals })
          if (values['once'] === true) await relay.once(signal)
          else {
            const beside = retention === false ? [] : [createOutboxRetention({ ...retention, db, outbox, signals })]
            note(`${relay.name} publishes the outbox of schema ${schema} to ${transport.name}.`)
            await telemetry.around(createHealth({ relay }), () => run([relay, ...beside], { signal, signals }))
          }
        } finally {
          await transport.close()
        }
        return { text: `Published ${published} ${published === 1 ? 'event' : 'events'}.`, data: { published } }
      },
      { max: connections },
    )
  },
}

/** What an operator should see go by. */
function tell(signals: SignalBus, note: (text: string) => void): void {
  signals.on('relay.parked', ({ aggregateType, aggregateId, eventId, error }) =>
    note(`parked: event ${eventId} of ${aggregateType} ${aggregateId}: ${error}`),
  )
  signals.on('relay.event-missing', ({ eventId }) => note(`missing: event ${eventId} was deleted before it was published`))
  signals.on('relay.breaker', ({ state, error }) => note(`broker ${state}${error === undefined ? '' : `: ${error}`}`))
  signals.on('listen.failed', ({ error }) => note(`listen: ${errorMessage(error)}`))
  signals.on('service.failed', ({ service, error, delayMs }) =>
    note(`${service}: ${errorMessage(error)} (again in ${Math.round(delayMs)} ms)`),
  )
}
