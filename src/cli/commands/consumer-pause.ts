/**
 * `waybill pause | resume`: stops a consumer or one of its aggregates, and lets it go on.
 */
import { pauseConsumer, resumeConsumer, type ConsumerPauseAction } from '../../consumer/operate/pause.ts'
import { WaybillError } from '../../core/errors.ts'
import { exitCodes, type Command, type CommandContext, type CommandResult, type OptionSpec } from '../frame/command.ts'
import { textOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { withSchema } from '../frame/open-schema.ts'

const pauseOptions: Readonly<Record<string, OptionSpec>> = {
  ...databaseOptions,
  consumer: { type: 'string', value: '<name>', help: 'this consumer' },
  stream: { type: 'string', value: '<type>', help: 'with --aggregate: its aggregate type' },
  aggregate: { type: 'string', value: '<id>', help: 'only this aggregate' },
  reason: { type: 'string', value: '<text>', help: 'why, for the audit log' },
}

export const pauseCommand: Command = {
  summary: 'Stop a consumer, or one aggregate of it',
  details: [
    'A paused consumer takes no deliveries; the broker keeps them. Events of a paused aggregate are stored and wait, and so',
    'does a dead letter of it that is redriven.',
    'To hold events back where they are written: waybill outbox pause.',
  ],
  options: pauseOptions,
  run: async (context) =>
    await withAction(context, async (action, what) => {
      const paused = await pauseConsumer(action)
      return { text: paused ? `Paused: ${what}.` : `${what} was paused already.`, data: { paused } }
    }),
}

export const resumeCommand: Command = {
  summary: 'Let a paused consumer or aggregate go on',
  details: ['An aggregate that a dead letter holds goes on after waybill dlq redrive or waybill dlq discard.'],
  options: pauseOptions,
  run: async (context) =>
    await withAction(context, async (action, what) => {
      const resumed = await resumeConsumer(action)
      const text = resumed ? `Resumed: ${what}.` : `${what} was not paused.`
      return { text, data: { resumed }, exitCode: resumed ? exitCodes.ok : exitCodes.checkFailed }
    }),
}

async function withAction(
  { values, settings, user }: CommandContext,
  work: (action: ConsumerPauseAction, what: string) => Promise<CommandResult>,
): Promise<CommandResult> {
  const consumer = textOption(values, 'consumer')
  const type = textOption(values, 'stream')
  const id = textOption(values, 'aggregate')
  const reason = textOption(values, 'reason')
  if (consumer === undefined) throw new WaybillError('INVALID_OPTION', 'Which consumer? Pass --consumer.')
  if ((type === undefined) !== (id === undefined))
    throw new WaybillError('INVALID_OPTION', 'An aggregate is named by --stream and --aggregate together.')
  const aggregate = type === undefined || id === undefined ? undefined : { type, id }
  const what = aggregate === undefined ? `consumer ${consumer}` : `${aggregate.type} ${aggregate.id} of consumer ${consumer}`
  return await withSchema(settings, (db, schema) => work({ db, schema, consumer, aggregate, actor: user, reason }, what))
}
