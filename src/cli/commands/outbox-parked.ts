/**
 * `waybill outbox redrive | skip | drop`: what to do with events that gave up. All of it is audited.
 */
import type { Chosen } from '../../core/options.ts'
import { defaults } from '../../core/defaults.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import {
  dropParked,
  listParked,
  redriveParked,
  skipParked,
  type ParkedAction,
  type ParkedFilter,
  type ParkedOutcome,
} from '../../outbox/operate/parked.ts'
import {
  exitCodes,
  type Command,
  type CommandContext,
  type CommandResult,
  type OptionSpec,
  type OptionValues,
} from '../frame/command.ts'
import { whichOptions } from './outbox.ts'
import { chosenBy, textOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { oneLine } from '../frame/text-table.ts'
import { withSchema } from '../frame/open-schema.ts'

const parkedOptions: Readonly<Record<string, OptionSpec>> = {
  ...databaseOptions,
  ...whichOptions,
  error: { type: 'string', value: '<text>', help: 'those whose error contains this text' },
  all: { type: 'boolean', help: 'every parked event' },
  reason: { type: 'string', value: '<text>', help: 'why, for the audit log' },
}

export const outboxRedrive: Command = {
  summary: 'Try parked events again, as if they had never failed',
  details: ['What is held behind them follows in order.'],
  options: parkedOptions,
  run: async (context) => await act(context, redriveParked, 'Due again'),
}

/** For what cannot be taken back. */
const finalOptions: Readonly<Record<string, OptionSpec>> = {
  ...parkedOptions,
  yes: { type: 'boolean', help: 'do it; without this it is only explained' },
}

export const outboxSkip: Command = {
  summary: 'Publish an empty marker in place of parked events',
  details: [
    'The marker (type waybill.void) has the id and version of the event: readers advance over it and do nothing, so no',
    'version is missing. What is held behind it follows. The effect of the event never happens.',
  ],
  options: finalOptions,
  run: async (context) => {
    if (context.values['yes'] === true) return await act(context, skipParked, 'Skipped')
    return await explain(context, 'skip', 'Readers step over what is skipped, and its effect never happens.')
  },
}

export const outboxDrop: Command = {
  summary: 'Remove parked events for good; nothing is published for them',
  details: [
    'The event is deleted from the outbox, and its version is missing for every reader: readers of deltas stop there.',
    'Prefer skip. An event is dropped only when no attempt to publish it can be under way any more, by publishTimeoutMs and',
    'leaseMs of relay in waybill.config.ts.',
  ],
  options: finalOptions,
  run: async (context) => {
    const { publishTimeoutMs, leaseMs } = { ...defaults.relay, ...context.settings.config.relay }
    const drop = (action: ParkedAction): Promise<ParkedOutcome> => dropParked({ ...action, publishTimeoutMs, leaseMs })
    if (context.values['yes'] === true) return await act(context, drop, 'Dropped')
    return await explain(context, 'drop', 'Dropping leaves a gap in the versions; skip does not.')
  },
}

/** What would happen, and what that means. Nothing is changed. */
async function explain(
  { values, settings, note }: CommandContext,
  verb: 'skip' | 'drop',
  meaning: string,
): Promise<CommandResult> {
  chosenOf(values)
  return await withSchema(settings, async (db, schema) => {
    const found = await listParked(db, createOutbox({ schema }), { ...filterOf(values), limit: 1_000 })
    note(`Nothing was changed. ${meaning} To ${verb}, run the same with --yes.`)
    const text = found.map(
      (event) =>
        `would ${verb} ${event.eventId} ${event.aggregateType} ${event.aggregateId} version ${event.version}: ${event.error}`,
    )
    const data = verb === 'skip' ? { wouldSkip: found } : { wouldDrop: found }
    return { text: text.map(oneLine).join('\n') || 'No parked event fits.', data, exitCode: exitCodes.refused }
  })
}

async function act(
  { values, settings, user, note }: CommandContext,
  perform: (action: ParkedAction) => Promise<ParkedOutcome>,
  done: string,
): Promise<CommandResult> {
  const filter = chosenOf(values)
  const reason = textOption(values, 'reason')
  return await withSchema(settings, async (db, schema) => {
    const outbox = createOutbox({ schema })
    const outcome = await perform({ db, outbox, filter, actor: user, reason })
    for (const { eventId, reason: why } of outcome.refused) note(`left alone: ${eventId}: ${why}`)
    const count = outcome.events.length
    const text = count === 0 ? 'No parked event fits.' : `${done}: ${count} ${count === 1 ? 'event' : 'events'}.`
    return { text, data: outcome, exitCode: count === 0 || outcome.refused.length > 0 ? exitCodes.checkFailed : exitCodes.ok }
  })
}

function filterOf(values: OptionValues): ParkedFilter {
  return {
    eventId: textOption(values, 'event'),
    aggregateType: textOption(values, 'stream'),
    aggregateId: textOption(values, 'aggregate'),
    error: textOption(values, 'error'),
  }
}

function chosenOf(values: OptionValues): Chosen<ParkedFilter> {
  const question = 'Which parked events? Pass --event, --stream (with --aggregate), --error, or --all alone.'
  return chosenBy(values, filterOf(values), question)
}
