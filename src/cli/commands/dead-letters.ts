/**
 * `waybill dlq list | show | redrive | discard`: what consumers gave up on, and what to do with it. All of it is audited.
 */
import { groupDeadLetters, listDeadLetters, showDeadLetter, type DeadLetterFilter } from '../../consumer/operate/dead-letters.ts'
import type { DeadLetterDetail, DeadLetterState } from '../../consumer/operate/dead-letters.ts'
import { discardDeadLetters, planDiscard } from '../../consumer/operate/discard.ts'
import { planRedrive, redriveDeadLetters, resumeRedrive, type PlannedRedrive } from '../../consumer/operate/redrive.ts'
import type { Chosen } from '../../core/options.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Database } from '../../postgres/query/database.ts'
import { exitCodes, type Command, type CommandContext, type CommandResult } from '../frame/command.ts'
import type { OptionSpec, OptionValues } from '../frame/command.ts'
import { chosenBy, textOption, wholeOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { oneLine, textTable } from '../frame/text-table.ts'
import { withSchema } from '../frame/open-schema.ts'

const reasons = 'failed, crashed, unknown_stream, unknown_type, unknown_schema, invalid, not_ours, version_jump, forked, broker'
const whichLetters: Readonly<Record<string, OptionSpec>> = {
  consumer: { type: 'string', value: '<name>', help: 'those of this consumer' },
  reason: { type: 'string', value: '<reason>', help: reasons },
  type: { type: 'string', value: '<name>', help: 'those of this event type' },
  stream: { type: 'string', value: '<type>', help: 'those of this aggregate type' },
  aggregate: { type: 'string', value: '<id>', help: 'with --stream: those of this aggregate' },
  event: { type: 'string', value: '<id>', help: 'this event' },
  id: { type: 'string', value: '<n,n>', help: 'these dead letters' },
}
const actOptions: Readonly<Record<string, OptionSpec>> = {
  ...databaseOptions,
  ...whichLetters,
  all: { type: 'boolean', help: 'every dead letter' },
  why: { type: 'string', value: '<text>', help: 'for the audit log' },
}

export const dlqList: Command = {
  summary: 'Count dead letters by consumer, reason and type, or list them',
  options: {
    ...databaseOptions,
    ...whichLetters,
    reason: { type: 'string', value: '<reason>', help: `${reasons}; or discarded, with that --state` },
    state: { type: 'string', value: '<state>', help: 'dead, redriving, redriven or discarded [dead]' },
    each: { type: 'boolean', help: 'every letter by itself, in the order they died' },
    limit: { type: 'string', value: '<n>', help: 'with --each: at most so many [100]' },
  },
  run: async (context) =>
    await withStore(context, async (store) => {
      const filter = filterOf(context.values)
      const state = stateOption(context.values)
      const isSingle = [filter.ids, filter.eventId, filter.aggregateType].some((each) => each !== undefined)
      if (context.values['each'] !== true && !isSingle) {
        const groups = await groupDeadLetters(store, { ...filter, state })
        const lines = groups.map((each) => [each.consumer, each.reason, each.eventType, each.count, each.oldestAt, each.error])
        const titles = ['CONSUMER', 'REASON', 'TYPE', 'LETTERS', 'OLDEST', 'NEWEST ERROR']
        return { text: groups.length === 0 ? 'None.' : textTable(titles, lines), data: groups }
      }
      const letters = await listDeadLetters(store, { ...filter, state, limit: wholeOption(context.values, 'limit') })
      const lines = letters.map((each) => [
        each.id,
        each.state,
        each.consumer,
        each.reason,
        each.eventType,
        each.aggregateId,
        each.version,
        each.attempts,
        each.redrives,
        each.holding,
        each.error,
      ])
      const titles = [
        'ID',
        'STATE',
        'CONSUMER',
        'REASON',
        'TYPE',
        'AGGREGATE',
        'VERSION',
        'ATTEMPTS',
        'REDRIVES',
        'HOLDS',
        'ERROR',
      ]
      return { text: letters.length === 0 ? 'None.' : textTable(titles, lines), data: letters }
    }),
}

export const dlqShow: Command = {
  summary: 'Show everything about one dead letter: errors, history, attributes, its body on request',
  options: {
    ...databaseOptions,
    id: { type: 'string', value: '<n>', help: 'the dead letter' },
    payload: { type: 'boolean', help: 'also its body; for members of the role <schema>_<service>_payloads' },
  },
  run: async (context) =>
    await withStore(context, async (store) => {
      const id = textOption(context.values, 'id')
      if (id === undefined) throw new WaybillError('INVALID_OPTION', 'Which dead letter? Pass --id.')
      const letter = await showDeadLetter(store, id, { payload: context.values['payload'] === true })
      const { body, ...rest } = letter
      const data = body === undefined ? rest : { ...rest, bodyBase64: Buffer.from(body).toString('base64') }
      return { text: letterText(letter), data }
    }),
}

export const dlqRedrive: Command = {
  summary: 'Apply dead letters again, in the consumer that failed and nowhere else',
  details: [
    'A running consumer applies them in order of versions; what waits behind them follows. A letter whose effect is',
    'committed already changes nothing. --dry-run says what would become of each.',
  ],
  options: {
    ...actOptions,
    'dry-run': { type: 'boolean', help: 'only say what would happen: duplicates, stale versions, order' },
    resume: { type: 'string', value: '<operation>', help: 'go on with a redrive that was interrupted' },
    'max-redrives': { type: 'string', value: '<n>', help: 'refuse letters that were redriven so often [10]' },
    'beyond-memory': { type: 'boolean', help: 'also those older than the inbox remembers: they may be applied twice' },
  },
  run: async (context) =>
    await withStore(context, async (store) => {
      const { values, user, note } = context
      const resume = textOption(values, 'resume')
      const limits = { maxRedrives: wholeOption(values, 'max-redrives'), beyondMemory: values['beyond-memory'] === true }
      if (values['dry-run'] === true) return planText(await planRedrive({ ...store, ...limits, filter: chosenOf(values) }))
      const outcome =
        resume === undefined
          ? await redriveDeadLetters({
              ...store,
              ...limits,
              filter: chosenOf(values),
              actor: user,
              reason: textOption(values, 'why'),
            })
          : await resumeRedrive(store, resume)
      for (const { id, because } of outcome.refusals) note(`left alone: ${id}: ${because}`)
      const { operation, redriven, refused } = outcome
      const text = `Redriving ${count(redriven)} (operation ${operation})${refused === 0 ? '.' : `; refused ${count(refused)}.`}`
      return { text, data: outcome, exitCode: redriven === 0 || refused > 0 ? exitCodes.checkFailed : exitCodes.ok }
    }),
}

export const dlqDiscard: Command = {
  summary: 'Give dead letters up for good: their effect never happens',
  details: [
    'What waited behind them goes on in order. The letters themselves are kept, as discarded. Letters that were redriven',
    'and are not applied yet are taken back; one that is being applied at this moment is left alone, and one whose event has',
    'taken effect meanwhile is closed as redriven.',
  ],
  options: { ...actOptions, yes: { type: 'boolean', help: 'do it; without this it is only explained' } },
  run: async (context) =>
    await withStore(context, async (store) => {
      const { values, user, note } = context
      const filter = chosenOf(values)
      if (values['yes'] !== true) {
        const found = await planDiscard({ ...store, filter })
        note('Nothing was changed. To discard, run the same with --yes.')
        const lines = found.map(
          ({ applied, id, consumer, eventType, eventId, error }) =>
            `would ${applied ? 'close' : 'discard'} ${id} of ${consumer}: ${eventType} ${eventId}: ${applied ? appliedText : error}`,
        )
        return {
          text: lines.map(oneLine).join('\n') || 'No dead letter fits.',
          data: { wouldDiscard: found },
          exitCode: exitCodes.refused,
        }
      }
      const outcome = await discardDeadLetters({ ...store, filter, actor: user, reason: textOption(values, 'why') })
      const { discarded, applied } = outcome
      for (const id of applied) note(`closed as redriven: ${id}: ${appliedText}`)
      const text = discarded.length === 0 ? 'No dead letter was discarded.' : `Discarded ${count(discarded.length)}.`
      return { text, data: outcome, exitCode: discarded.length === 0 ? exitCodes.checkFailed : exitCodes.ok }
    }),
}

const appliedText = 'its event was delivered again, and its effect is committed.'

async function withStore(
  { settings }: CommandContext,
  work: (store: { readonly db: Database; readonly schema: string }) => Promise<CommandResult>,
): Promise<CommandResult> {
  return await withSchema(settings, (db, schema) => work({ db, schema }))
}

function filterOf(values: OptionValues): DeadLetterFilter {
  return {
    consumer: textOption(values, 'consumer'),
    reason: textOption(values, 'reason'),
    eventType: textOption(values, 'type'),
    aggregateType: textOption(values, 'stream'),
    aggregateId: textOption(values, 'aggregate'),
    eventId: textOption(values, 'event'),
    ids: textOption(values, 'id')?.split(','),
  }
}

function chosenOf(values: OptionValues): Chosen<DeadLetterFilter> {
  const options = '--consumer, --reason, --type, --stream (with --aggregate), --event or --id, or --all alone'
  return chosenBy(values, filterOf(values), `Which dead letters? Pass ${options}.`)
}

function stateOption(values: OptionValues): DeadLetterState {
  const given = textOption(values, 'state') ?? 'dead'
  const state = (['dead', 'redriving', 'redriven', 'discarded'] as const).find((each) => each === given)
  if (state !== undefined) return state
  throw new WaybillError('INVALID_OPTION', `--state is dead, redriving, redriven or discarded, not "${given}".`)
}

function planText(planned: readonly PlannedRedrive[]): CommandResult {
  const lines = planned.map((each) => [
    each.verdict,
    each.id,
    each.consumer,
    each.eventType,
    each.aggregateId,
    each.version,
    each.because,
  ])
  const titles = ['VERDICT', 'ID', 'CONSUMER', 'TYPE', 'AGGREGATE', 'VERSION', 'BECAUSE']
  return { text: planned.length === 0 ? 'No dead letter fits.' : textTable(titles, lines), data: planned }
}

function letterText(letter: DeadLetterDetail): string {
  const { body, history, attributes, ...facts } = letter
  return [
    ...Object.entries(facts).map(([key, value]) => `${key.padEnd(14)} ${value ?? ''}`),
    ...Object.entries(attributes).map(([key, value]) => `attribute      ${key}: ${value}`),
    ...history.map((entry) => `history        ${JSON.stringify(entry)}`),
    body === undefined
      ? 'body           not asked for: --payload shows it'
      : `body           ${body.byteLength} bytes${body.byteLength === 0 ? '' : `: ${Buffer.from(body).toString('utf8')}`}`,
  ]
    .map(printable)
    .join('\n')
}

/** One line, without what a terminal would act upon. */
function printable(text: string): string {
  const clean = oneLine(text)
  return clean.length <= 4_000 ? clean : `${clean.slice(0, 3_999)}…`
}

function count(letters: number): string {
  return `${letters} ${letters === 1 ? 'dead letter' : 'dead letters'}`
}
