/**
 * `waybill status`: services at one glance, once or again and again, for people, programs and probes.
 */
import { systemClock } from '../../core/service/clock.ts'
import { errorMessage, WaybillError } from '../../core/errors.ts'
import { checkStatus, type StatusFinding, type StatusLimits } from '../../ops/status/check.ts'
import { status, type Status } from '../../ops/status/status.ts'
import {
  exitCodes,
  type Command,
  type CommandContext,
  type CommandResult,
  type OptionSpec,
  type OptionValues,
} from '../frame/command.ts'
import { alsoOption, withServices } from '../frame/configured-services.ts'
import { defaults } from '../../core/defaults.ts'
import { durationOption, textOption, wholeOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { statusText } from './status-text.ts'
import { terminalJson, textDuration } from '../frame/text-table.ts'

const limitOptions: Readonly<Record<string, OptionSpec>> = {
  'max-lag': {
    type: 'string',
    value: '<duration>',
    help: `the oldest that could be published or applied [${shown('maxLagMs')}]`,
  },
  'max-backlog': { type: 'string', value: '<n>', help: `events that wait in the outbox [${defaults.statusCheck.maxBacklog}]` },
  'max-parked': { type: 'string', value: '<n>', help: `events that gave up on the broker [${defaults.statusCheck.maxParked}]` },
  'max-dead': { type: 'string', value: '<n>', help: `dead letters [${defaults.statusCheck.maxDead}]` },
  'max-gap': { type: 'string', value: '<duration>', help: `how long a message may wait for its turn [${shown('maxGapMs')}]` },
  'max-cleanup-lag': {
    type: 'string',
    value: '<duration>',
    help: `how late the clean-up of markers may be [${shown('maxCleanupLagMs')}]`,
  },
}

export const statusCommand: Command = {
  summary: 'Say what waits, who works on it, what is held or given up, and how far consumers are',
  details: [
    `With --check the exit code is ${exitCodes.checkFailed} while anything is over its limit, and ${exitCodes.ok} otherwise; each --max- option implies it.`,
    'It only reads, as the role …_readonly may, and stays quick however much waits: large counts are estimated. With --watch',
    'and --json it prints a line each time. Ctrl-C ends it.',
  ],
  options: {
    ...databaseOptions,
    also: alsoOption,
    watch: { type: 'boolean', help: 'draw it again and again' },
    every: { type: 'string', value: '<duration>', help: 'with --watch: how often [2s]' },
    top: { type: 'string', value: '<n>', help: 'how many held keys and aggregates are named [5]' },
    check: { type: 'boolean', help: 'compare with the limits' },
    ...limitOptions,
  },
  async run(context) {
    const { values } = context
    const limits = limitsOf(values)
    const look = (): Promise<CommandResult> => lookAt(context, limits)
    if (values['watch'] === true) return await watch(context, look)
    if (values['every'] !== undefined) throw new WaybillError('INVALID_OPTION', '--every needs --watch.')
    return await look()
  },
}

async function lookAt(context: CommandContext, limits: StatusLimits | undefined): Promise<CommandResult> {
  const top = wholeOption(context.values, 'top')
  return await withServices(context, async (services) => {
    const reports = await Promise.all(
      services.map(({ db, schema, markerTtlMs }) => status({ db, schema, markerTtlMs, ...(top === undefined ? {} : { top }) })),
    )
    const found = limits === undefined ? undefined : reports.map((report) => checkStatus(report, limits))
    return {
      text: reports.map((report, index) => statusText(report, found?.[index])).join('\n\n'),
      data: dataOf(reports, found?.flat()),
      exitCode: (found?.flat().length ?? 0) === 0 ? exitCodes.ok : exitCodes.checkFailed,
    }
  })
}

/** One service as it is, several as a list. */
function dataOf(reports: readonly Status[], findings: readonly StatusFinding[] | undefined): unknown {
  const checked = findings === undefined ? {} : { ok: findings.length === 0, findings }
  return reports.length === 1 ? { ...reports[0], ...checked } : { services: reports, ...checked }
}

const home = '\u001b[H'
const eraseToEndOfLine = '\u001b[K'
const eraseBelow = '\u001b[J'

/**
 * Draws over what is there, line by line, so that nothing flickers; the last picture stays when it ends. A database that goes
 * away meanwhile is waited for; one that was never there is an error.
 */
async function watch(context: CommandContext, look: () => Promise<CommandResult>): Promise<CommandResult> {
  const { values, out, note, isTerminal, stopSignal } = context
  const everyMs = durationOption(values, 'every') ?? 2_000
  const signal = stopSignal()
  const draws = isTerminal && values['json'] !== true
  if (draws) out(`${home}${eraseBelow}`)
  let last = await look()
  while (!signal.aborted) {
    if (values['json'] === true) out(`${terminalJson(last.data)}\n`)
    else out(draws ? picture(last.text) : `${last.text}\n\n`)
    await systemClock.sleep(everyMs, signal)
    try {
      last = await look()
    } catch (error) {
      note(errorMessage(error))
      last = { ...last, exitCode: exitCodes.failed }
    }
  }
  if (draws) out(`${home}${eraseBelow}`)
  return last
}

function picture(text: string): string {
  return `${home}${text.replaceAll('\n', `${eraseToEndOfLine}\n`)}${eraseToEndOfLine}\n${eraseBelow}`
}

/** `undefined` unless a check is asked for. */
function limitsOf(values: OptionValues): StatusLimits | undefined {
  const isAsked = values['check'] === true || Object.keys(limitOptions).some((option) => values[option] !== undefined)
  if (!isAsked) return undefined
  const limits = {
    maxLagMs: durationOption(values, 'max-lag'),
    maxBacklog: countOption(values, 'max-backlog'),
    maxParked: countOption(values, 'max-parked'),
    maxDead: countOption(values, 'max-dead'),
    maxGapMs: durationOption(values, 'max-gap'),
    maxCleanupLagMs: durationOption(values, 'max-cleanup-lag'),
  }
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined))
}

function countOption(values: OptionValues, option: string): number | undefined {
  const given = textOption(values, option)
  if (given === undefined) return undefined
  if (/^\d{1,15}$/.test(given)) return Number(given)
  throw new WaybillError('INVALID_OPTION', `--${option} needs a whole number, not "${given}".`)
}

function shown(limit: 'maxLagMs' | 'maxGapMs' | 'maxCleanupLagMs'): string {
  return textDuration(defaults.statusCheck[limit]).replaceAll(' ', '')
}
