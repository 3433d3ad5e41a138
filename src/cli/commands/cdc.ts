/**
 * `waybill outbox cdc [on | off]`: hands the outbox over to a connector and back, in the order that loses nothing.
 */
import { WaybillError } from '../../core/errors.ts'
import { cdcPublication } from '../../ops/cdc/slot.ts'
import { cdcStatus, giveUpSlot, switchCdcOff, switchCdcOn, type CdcOptions } from '../../ops/cdc/cdc.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import type { Command, CommandContext, CommandResult, OptionSpec } from '../frame/command.ts'
import { textOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { textTable } from '../frame/text-table.ts'
import { withSchema } from '../frame/open-schema.ts'

const cdcOptions: Readonly<Record<string, OptionSpec>> = {
  ...databaseOptions,
  slot: { type: 'string', value: '<name>', help: 'the replication slot of the connector' },
}

export const outboxCdc: Command = {
  summary: 'Say whether relays or a connector publish, and how far each slot is',
  options: databaseOptions,
  run: async ({ settings }) =>
    await withSchema(settings, async (db, schema) => {
      const status = await cdcStatus(db, createOutbox({ schema }))
      const lines = status.slots.map(({ slot, plugin, active, lagBytes }) => [slot, plugin, active ? 'yes' : 'no', lagBytes])
      const text = [
        status.dispatching ? 'Dispatch is on: relays publish.' : 'Dispatch is off: a connector publishes.',
        ...(lines.length === 0 ? [] : [textTable(['SLOT', 'PLUGIN', 'ACTIVE', 'BEHIND (BYTES)'], lines)]),
      ]
      return { text: text.join('\n'), data: status }
    }),
}

export const outboxCdcOn: Command = {
  summary: 'Switch from relays to a connector',
  details: [
    'Makes publication and slot, stops writing dispatch rows, and waits until the relays, which must run, have drained the',
    'outbox. Only then start the connector. Can be interrupted and run again.',
  ],
  options: cdcOptions,
  run: async (context) =>
    await withCdc(context, async (options) => {
      await switchCdcOn(options)
      const publication = cdcPublication(options.outbox)
      return {
        text: `The outbox is drained and no dispatch rows are written any more. Start the connector on slot "${options.slot}", publication "${publication}", without a snapshot; give retention the slot; stop the relays.`,
        data: { slot: options.slot, publication },
      }
    }),
}

export const outboxCdcOff: Command = {
  summary: 'Switch from a connector back to relays',
  details: [
    'The relays must be stopped, the connector must run. Writes dispatch rows again and waits until the connector has',
    'passed that point. Then stop the connector, drop its slot, and start the relays. Can be interrupted and run again.',
    'If the slot is gone, or has lost its log, --lost lets relays publish again all that was added since the connector took over.',
  ],
  options: {
    ...cdcOptions,
    lost: { type: 'boolean', help: 'the slot is gone: publish again what the connector may not have read' },
  },
  run: async (context) =>
    await withCdc(context, async (options) => {
      if (context.values['lost'] === true) {
        const events = await giveUpSlot(options)
        return {
          text: `${events} events were put in line again, all since the connector took over: some of them it has published already, and readers remove those. Start the relays, take the slot from retention, and drop the slot if it is still there.`,
          data: { slot: options.slot, events },
        }
      }
      await switchCdcOff(options)
      return {
        text: `The connector has published everything that only it could. Stop it now, for it heeds neither dates nor pauses; then drop the slot "${options.slot}", start the relays, and take the slot from retention.`,
        data: { slot: options.slot },
      }
    }),
}

async function withCdc(
  { values, settings, user, stopSignal, note }: CommandContext,
  work: (options: CdcOptions) => Promise<CommandResult>,
): Promise<CommandResult> {
  const slot = textOption(values, 'slot')
  if (slot === undefined) throw new WaybillError('INVALID_OPTION', 'Which replication slot? Pass --slot.')
  return await withSchema(settings, async (db, schema) => {
    const outbox = createOutbox({ schema })
    return await work({ db, outbox, slot, actor: user, signal: stopSignal(), onProgress: note })
  })
}
