/**
 * `waybill relay`: a relay as a process of its own, with retention beside it; or, with `--once`, as a job that drains, removes
 * what is old enough and exits. The first SIGTERM finishes the batch in hand and gives the lanes back.
 */
import { isWaybillError, WaybillError } from '../../core/errors.ts'
import { run, type Service } from '../../core/service/lifetime.ts'
import type { SignalBus } from '../../core/signals.ts'
import { underSignals } from '../../core/service/abort.ts'
import { closedAfter } from '../../ops/connect/with-database.ts'
import { createHealth } from '../../ops/status/health.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import { createRelay, type Relay } from '../../outbox/relay/relay.ts'
import { createOutboxRetention, type OutboxRetention } from '../../outbox/operate/retention.ts'
import type { Command, CommandContext, CommandResult, OptionValues } from '../frame/command.ts'
import { databaseOptions } from '../frame/settings.ts'
import { createTelemetry, telemetryOptions, withSignals } from '../frame/telemetry.ts'
import { withSchema } from '../frame/open-schema.ts'

/** Pass, renewal, watch and retention each need one at times. */
const connections = 5
/** How long a job removes what is old: what is left then is for the next one. */
const removeMs = 30_000

export const relayCommand: Command = {
  summary: 'Publish committed events until stopped, beside any number of other relays',
  details: [
    'Transport, streams, relay and retention come from waybill.config.ts. The first SIGTERM or SIGINT finishes what is in',
    'hand and gives the lanes to the others. With --once it publishes what is due, removes events and receipts whose time is',
    'over, no further batch after 30 seconds, and exits: for a scheduled job.',
  ],
  options: {
    ...databaseOptions,
    once: { type: 'boolean', help: 'publish what is due, remove what is old, then exit' },
    ...telemetryOptions,
  },
  run: (context) => withSignals((signals) => runRelay(context, signals)),
}

async function runRelay({ values, settings, stopSignal, note }: CommandContext, signals: SignalBus): Promise<CommandResult> {
  refuseListeningJob(values)
  const { service } = settings.names()
  const configured = settings.relay()
  const signal = stopSignal()
  let published = 0
  signals.on('relay.published', ({ count }) => void (published += count))
  const telemetry = createTelemetry(values, signals, note)
  return await withSchema(
    settings,
    async (db, schema) => {
      const outbox = createOutbox({ schema })
      const transport = await configured.transport({ db, schema })
      await closedAfter(transport, async () => {
        const { streams, relay: options, retention } = configured
        const relay = createRelay({ ...options, db, outbox, transport, streams, service, signals })
        const beside = retention === false ? [] : [createOutboxRetention({ ...retention, db, outbox, signals })]
        if (values['once'] === true) return await run([createJob(relay, beside)], { signal, signals })
        note(`${relay.name} publishes the outbox of schema ${schema} to ${transport.name}.`)
        await telemetry.around(createHealth({ relay }), () => run([relay, ...beside], { signal, signals }))
      })
      return { text: `Published ${published} ${published === 1 ? 'event' : 'events'}.`, data: { published } }
    },
    { max: connections },
  )
}

/**
 * All of it once. As a service it stops in its time, also if the database does not answer any more. What is old goes whatever became
 * of the drain: a topic that is missing for days must not fill the tables with what the others have. The drain's failure comes first.
 */
function createJob(relay: Relay, beside: readonly OutboxRetention[]): Service {
  return {
    name: relay.name,
    run: async ({ stopping, aborting }) => {
      const [drained] = await Promise.allSettled([relay.once(stopping, aborting)])
      if (drained.status === 'rejected' && isOthers(drained.reason)) throw drained.reason
      const [removed] = await Promise.allSettled([removeOld(beside, stopping)])
      for (const part of [drained, removed]) if (part.status === 'rejected') throw part.reason
    },
  }
}

/** The database is not the one that this relay is for: nothing is removed there, either. */
function isOthers(error: unknown): boolean {
  return isWaybillError(error, 'WRONG_DEPLOYMENT') || isWaybillError(error, 'SCHEMA_MISMATCH')
}

async function removeOld(retentions: readonly OutboxRetention[], signal: AbortSignal): Promise<void> {
  await underSignals([signal, AbortSignal.timeout(removeMs)], async (stopping) => {
    for (const retention of retentions) await retention.once(stopping)
  })
}

function refuseListeningJob(values: OptionValues): void {
  if (values['once'] !== true || values['listen'] === undefined) return
  throw new WaybillError(
    'INVALID_OPTION',
    '--listen is for a relay that stays: with --once it exits before anybody asks. Leave one of the two out.',
  )
}
