/**
 * `waybill outbox status | list | lanes`: what waits in the outbox, where an event is, and who works on it.
 */
import { WaybillError } from '../../core/errors.ts'
import { changeLanes, listLanes, listOutbox, outboxStatus, type OutboxStatus } from '../../ops/status/outbox-status.ts'
import { outboxStates, type OutboxState } from '../../ops/status/outbox-states.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import { pauseSubject } from '../../outbox/operate/pause.ts'
import type { Command, OptionSpec, OptionValues } from '../frame/command.ts'
import { textOption, wholeOption } from '../frame/option-values.ts'
import { databaseOptions } from '../frame/settings.ts'
import { oneLine, textDuration, textTable } from '../frame/text-table.ts'
import { withSchema } from '../frame/open-schema.ts'

/** Which stream, aggregate or event a command is about. */
export const whichOptions: Readonly<Record<'stream' | 'aggregate' | 'event', OptionSpec>> = {
  stream: { type: 'string', value: '<type>', help: 'the events of this aggregate type' },
  aggregate: { type: 'string', value: '<id>', help: 'with --stream: the events of this aggregate' },
  event: { type: 'string', value: '<id>', help: 'this event' },
}

export const outboxStatusCommand: Command = {
  summary: 'Say what waits in the outbox, and who works on it',
  options: databaseOptions,
  run: async ({ settings }) =>
    await withSchema(settings, async (db, schema) => {
      const status = await outboxStatus(db, createOutbox({ schema }))
      return { text: statusText(status), data: status }
    }),
}

export const outboxList: Command = {
  summary: 'List what waits, oldest first, or the history of an aggregate or event',
  options: {
    ...databaseOptions,
    ...whichOptions,
    state: { type: 'string', value: '<state>', help: outboxStates.map((state) => state.toLowerCase()).join(', ') },
    limit: { type: 'string', value: '<n>', help: 'at most so many [50]' },
  },
  run: async ({ values, settings }) =>
    await withSchema(settings, async (db, schema) => {
      const events = await listOutbox(db, createOutbox({ schema }), {
        state: stateOption(values),
        aggregateType: textOption(values, 'stream'),
        aggregateId: textOption(values, 'aggregate'),
        eventId: textOption(values, 'event'),
        limit: wholeOption(values, 'limit'),
      })
      const lines = events.map((event) => [
        event.state,
        event.eventId,
        event.aggregateType,
        event.aggregateId,
        event.version,
        event.eventType,
        event.attempts,
        event.publishedAt ?? event.nextRetryAt,
        event.error,
      ])
      const titles = ['STATE', 'EVENT', 'STREAM', 'AGGREGATE', 'VERSION', 'TYPE', 'ATTEMPTS', 'PUBLISHED OR DUE', 'ERROR']
      return { text: events.length === 0 ? 'Nothing.' : textTable(titles, lines), data: events }
    }),
}

export const outboxLanes: Command = {
  summary: 'Show who works which lane and what waits in it, or change their number',
  details: ['Changing the number stops writers and relays while every waiting event moves to its new lane.'],
  options: {
    ...databaseOptions,
    change: { type: 'string', value: '<n>', help: 'the new number of lanes, a power of two up to 4096' },
  },
  run: async ({ values, settings, user }) =>
    await withSchema(settings, async (db, schema) => {
      const outbox = createOutbox({ schema })
      const change = wholeOption(values, 'change')
      if (change !== undefined) await changeLanes(db, outbox, { lanes: change, actor: user })
      const lanes = await listLanes(db, outbox)
      const lines = lanes.map((each) => [
        each.lane,
        each.owner,
        each.expiresInMs === undefined ? undefined : Math.max(0, Math.round(each.expiresInMs)),
        each.due,
        each.retrying,
        each.held,
        each.parked,
      ])
      return {
        text: textTable(['LANE', 'RELAY', 'LEASE (MS)', 'DUE', 'RETRYING', 'HELD', 'PARKED'], lines),
        data: { lanes },
      }
    }),
}

function statusText({ dispatching, backlog, relays, pauses }: OutboxStatus): string {
  const waiting = backlog.due + backlog.retrying + backlog.held + backlog.parked
  const age = waiting === 0 ? '' : `, the oldest for ${textDuration(backlog.oldestAgeMs)}`
  return [
    `${waiting} events wait${age}: ${backlog.due} due, ${backlog.retrying} to be retried, ${backlog.held} held, ${backlog.parked} parked`,
    dispatching ? undefined : 'A connector reads the outbox: no dispatch rows are written (waybill outbox cdc).',
    relays.length === 0
      ? 'No relay is running.'
      : `Relays: ${relays.map(({ relay, lanes }) => `${relay} (${lanes} lanes)`).join(', ')}`,
    backlog.unownedLanes > 0 && relays.length > 0 ? `${backlog.unownedLanes} lanes have had no relay for two leases.` : undefined,
    ...pauses.map(
      (pause) =>
        `Paused: ${pauseSubject(pause)}, by ${pause.pausedBy} at ${pause.pausedAt}${pause.reason === '' ? '' : `: ${pause.reason}`}`,
    ),
  ]
    .filter((line) => line !== undefined)
    .map(oneLine)
    .join('\n')
}

function stateOption(values: OptionValues): OutboxState | undefined {
  const given = textOption(values, 'state')
  if (given === undefined) return undefined
  const state = outboxStates.find((each) => each === given.toUpperCase())
  if (state !== undefined) return state
  throw new WaybillError('INVALID_OPTION', `--state is one of ${outboxStates.join(', ').toLowerCase()}, not "${given}".`)
}
