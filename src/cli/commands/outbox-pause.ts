/**
 * `waybill outbox pause | resume`: holds a stream, an aggregate or everything back, and lets it go again.
 */
import { WaybillError } from '../../core/errors.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import { pauseOutbox, pauseSubject, resumeOutbox, type PauseAction } from '../../outbox/operate/pause.ts'
import { exitCodes, type Command, type CommandContext, type CommandResult, type OptionSpec } from '../frame/command.ts'
import { whichOptions } from './outbox.ts'
import { textOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { withSchema } from '../frame/open-schema.ts'

const pauseOptions: Readonly<Record<string, OptionSpec>> = {
  ...databaseOptions,
  stream: { ...whichOptions.stream, help: 'this aggregate type' },
  aggregate: { ...whichOptions.aggregate, help: 'only this aggregate of it' },
  all: { type: 'boolean', help: 'in place of a stream: everything, also streams that are new' },
  reason: { type: 'string', value: '<text>', help: 'why, for the audit log and for whoever finds it paused' },
}

export const outboxPause: Command = {
  summary: 'Hold back the events of a stream, of one aggregate, or all',
  details: ['They are recorded as ever, and wait. Relays hear of it within 2 seconds.'],
  options: pauseOptions,
  run: async (context) =>
    await withAction(context, async (action, what) => {
      const paused = await pauseOutbox(action)
      return { text: paused ? `Paused: ${what}.` : `${what} was paused already.`, data: { paused } }
    }),
}

export const outboxResume: Command = {
  summary: 'Let a paused stream or aggregate go on, or all',
  details: ['--all ends the pause of everything; streams and aggregates that were paused by themselves stay so.'],
  options: pauseOptions,
  run: async (context) =>
    await withAction(context, async (action, what) => {
      const woken = await resumeOutbox(action)
      if (woken === undefined)
        return { text: `${what} was not paused.`, data: { resumed: false }, exitCode: exitCodes.checkFailed }
      const waited = action.all === true ? '' : `; ${woken} aggregates had waited`
      return { text: `Resumed: ${what}${waited}.`, data: { resumed: true, woken } }
    }),
}

async function withAction(
  { values, settings, user }: CommandContext,
  work: (action: PauseAction, what: string) => Promise<CommandResult>,
): Promise<CommandResult> {
  const aggregateType = textOption(values, 'stream')
  const aggregateId = textOption(values, 'aggregate')
  const reason = textOption(values, 'reason')
  const all = values['all'] === true
  if (all ? aggregateType !== undefined || aggregateId !== undefined : aggregateType === undefined)
    throw new WaybillError(
      'INVALID_OPTION',
      'Which stream? Pass --stream, and --aggregate for one aggregate of it; or --all alone.',
    )
  const what = all || aggregateId !== undefined ? pauseSubject({ aggregateType, aggregateId }) : `stream ${aggregateType}`
  return await withSchema(settings, async (db, schema) => {
    const outbox = createOutbox({ schema })
    return await work({ db, outbox, aggregateType, aggregateId, all, actor: user, reason }, what)
  })
}
