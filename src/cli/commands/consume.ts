/**
 * `waybill consume`: the consumers of the configuration as a process of its own, with retention beside them, and what drains
 * the broker's dead letters where it has any. The first SIGTERM finishes and acknowledges what is in hand.
 */
import type { Consumer } from '../../consumer/consumer.ts'
import { deadLetterDrains } from '../../consumer/operate/broker-dead-letters.ts'
import { createInboxRetention } from '../../consumer/operate/retention.ts'
import { WaybillError } from '../../core/errors.ts'
import { run } from '../../core/service/lifetime.ts'
import type { SignalBus } from '../../core/signals.ts'
import { closedAfter } from '../../ops/connect/with-database.ts'
import { createHealth } from '../../ops/status/health.ts'
import type { Command, CommandContext, CommandResult, OptionValues } from '../frame/command.ts'
import { textOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { createTelemetry, telemetryOptions, withSignals } from '../frame/telemetry.ts'
import { withSchema } from '../frame/open-schema.ts'

/** Beside the batches: looking at what is stored, reading for waiters, retention. */
const spareConnections = 3

export const consumeCommand: Command = {
  summary: 'Apply events until stopped, beside any number of other processes',
  details: [
    'The consumers, the transport and what retention removes come from waybill.config.ts. The first SIGTERM or SIGINT',
    'finishes what is in hand.',
  ],
  options: {
    ...databaseOptions,
    consumer: { type: 'string', value: '<name,name>', help: 'only these consumers' },
    connections: { type: 'string', value: '<n>', help: 'connections to the database, at most [7]' },
    ...telemetryOptions,
  },
  run: (context) => withSignals((signals) => runConsumers(context, signals)),
}

async function runConsumers({ values, settings, stopSignal, note }: CommandContext, signals: SignalBus): Promise<CommandResult> {
  const { service } = settings.names()
  const configured = settings.consume()
  const signal = stopSignal()
  let applied = 0
  signals.on('consumer.applied', ({ count }) => void (applied += count))
  const telemetry = createTelemetry(values, signals, note)
  return await withSchema(
    settings,
    async (db, schema) => {
      const transport = await configured.transport({ db, schema })
      await closedAfter(transport, async () => {
        const made = await configured.consumers({ db, schema, service, transport, signals })
        const consumers = chosen(made, values)
        const { retention } = configured
        const removing = retention === false ? [] : [createInboxRetention({ ...retention, db, schema, signals })]
        const services = [...consumers, ...removing, ...consumers.flatMap(deadLetterDrains)]
        note(`${consumers.map(({ name }) => name).join(', ')}: reading from ${transport.name}.`)
        await telemetry.around(createHealth({ consumers }), () => run(services, { signal, signals }))
      })
      return { text: `Applied ${applied} ${applied === 1 ? 'event' : 'events'}.`, data: { applied } }
    },
    { max: connectionsOption(values) },
  )
}

function chosen(made: readonly Consumer[], values: OptionValues): readonly Consumer[] {
  const only = textOption(values, 'consumer')?.split(',')
  if (only === undefined) return made
  return only.map((name) => {
    const found = made.find((each) => each.settings.name === name)
    if (found !== undefined) return found
    const known = made.map((each) => each.settings.name).join(', ')
    throw new WaybillError('UNKNOWN_NAME', `waybill.config.ts has no consumer "${name}"; it has ${known}.`)
  })
}

function connectionsOption(values: OptionValues): number {
  const given = textOption(values, 'connections')
  if (given === undefined) return 4 + spareConnections
  const number = Number(given)
  if (Number.isSafeInteger(number) && number >= 2 && number <= 1_000) return number
  throw new WaybillError('INVALID_OPTION', `--connections needs a whole number from 2 to 1000, not "${given}".`)
}
