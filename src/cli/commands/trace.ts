/**
 * `waybill trace`: the journey of a request or an event through one service or several, as a line of time.
 */
import { trace } from '../../ops/trace/trace.ts'
import type { Trace } from '../../ops/trace/report.ts'
import { traceTimeline } from '../../ops/trace/timeline.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Command } from '../frame/command.ts'
import { alsoOption, withServices } from '../frame/configured-services.ts'
import { textOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { oneLine } from '../frame/text-table.ts'

export const traceCommand: Command = {
  summary: 'Follow a request or an event from its command to the projections',
  details: [
    'The id is an event id or a request id. It shows the marker of the command, the events of its transaction, their',
    'publishes, what became of them at each consumer, the versions that projections have, and what followed. Payloads are',
    'never shown. Name the other services that the journey passes through with --also.',
  ],
  argument: 'id',
  options: {
    ...databaseOptions,
    principal: { type: 'string', value: '<name>', help: "whose request it is; without it, all requests' ids are looked through" },
    also: alsoOption,
  },
  async run(context) {
    const { values } = context
    const id = textOption(values, 'id')
    if (id === undefined) throw new WaybillError('INVALID_OPTION', 'Which request or event? Write: waybill trace <id>')
    return await withServices(context, async (services) => {
      const found = await trace(services, { id, principal: textOption(values, 'principal') })
      return { text: traceText(found), data: { ...found, timeline: traceTimeline(found) } }
    })
  },
}

/** Moments as the time since the first, which is written in full. */
function traceText(found: Trace): string {
  const timeline = traceTimeline(found)
  const begin = timeline.find(({ at }) => at !== undefined)?.at
  const lines = timeline.map(({ at, service, text }) => [since(begin, at), service, oneLine(text)] as const)
  const width = (column: 0 | 1): number => Math.max(0, ...lines.map((line) => line[column].length))
  return [
    ...(begin === undefined ? [] : [begin]),
    ...lines.map(([at, service, text]) => `${at.padStart(width(0))}  ${service.padEnd(width(1))}  ${text}`),
    ...found.notes.map((note) => oneLine(`Note: ${note}`)),
  ].join('\n')
}

function since(begin: string | undefined, at: string | undefined): string {
  if (begin === undefined || at === undefined) return ''
  const ms = microseconds(at) - microseconds(begin)
  return `${ms < 0 ? '-' : '+'}${(Math.abs(ms) / 1_000).toFixed(1)} ms`
}

/** `Date` keeps milliseconds only; the rest stands behind them. */
function microseconds(at: string): number {
  const rest = /\.\d{3}(\d{3})Z$/.exec(at)?.[1] ?? '0'
  return Date.parse(at) * 1_000 + Number(rest)
}
