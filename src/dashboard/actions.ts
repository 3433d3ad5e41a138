/**
 * What a viewer may do, by name: each is a function of the product that is audited in its own transaction, under the viewer's name.
 *
 * What can only be taken back by hand (dropping an event, a new number of lanes, a rebuild) stays with the command line.
 */
import { discardDeadLetters, type DiscardAction } from '../consumer/operate/discard.ts'
import { pauseConsumer, resumeConsumer, type ConsumerPauseAction } from '../consumer/operate/pause.ts'
import { redriveDeadLetters } from '../consumer/operate/redrive.ts'
import { WaybillError } from '../core/errors.ts'
import { createOutbox } from '../outbox/outbox.ts'
import { redriveParked, skipParked, type ParkedAction, type ParkedOutcome } from '../outbox/operate/parked.ts'
import { pauseOutbox, resumeOutbox, type PauseAction } from '../outbox/operate/pause.ts'
import type { Database } from '../postgres/query/database.ts'
import type { DashboardSettings } from './dashboard-options.ts'
import { onService } from './on-service.ts'

export interface ActionOutcome {
  /** What was done, or why nothing was. */
  readonly text: string
  /** Whether anything was. */
  readonly done: boolean
}

interface Task {
  readonly db: Database
  readonly schema: string
  readonly actor: string
  readonly reason: string | undefined
  readonly body: Body
}

const longestReason = 500

type Body = Readonly<Record<string, unknown>>
type Action = (task: Task) => Promise<ActionOutcome>

const actions: Readonly<Record<string, Action>> = {
  'pause-stream': async (task) => {
    const { action, what } = streamOf(task)
    const done = await pauseOutbox(action)
    return { text: done ? `Paused: ${what}.` : `${what} was paused already.`, done }
  },
  'resume-stream': async (task) => {
    const { action, what } = streamOf(task)
    const woken = await resumeOutbox(action)
    const done = woken !== undefined
    const waited = action.all === true ? '' : `; ${count(woken ?? 0, 'aggregate')} had waited`
    return { text: done ? `Resumed: ${what}${waited}.` : `${what} was not paused.`, done }
  },
  'pause-consumer': async (task) => {
    const { action, what } = consumerOf(task)
    const done = await pauseConsumer(action)
    return { text: done ? `Paused: ${what}.` : `${what} was paused already.`, done }
  },
  'resume-consumer': async (task) => {
    const { action, what } = consumerOf(task)
    const done = await resumeConsumer(action)
    return { text: done ? `Resumed: ${what}.` : `${what} was not paused.`, done }
  },
  'redrive-parked': async (task) => parkedText('Due again', await redriveParked(parkedOf(task))),
  'skip-parked': async (task) => parkedText('Skipped', await skipParked(parkedOf(task))),
  'redrive-letters': async (task) => {
    const { redriven, refused, refusals } = await redriveDeadLetters(lettersOf(task))
    const because = refusals[0] === undefined ? '' : ` ${refusals[0].because}`
    const left = refused === 0 ? '' : ` Left alone: ${count(refused, 'dead letter')}.${because}`
    const nothing = refused === 0 ? 'No dead letter fits.' : 'Nothing is redriven.'
    return { text: `${redriven === 0 ? nothing : `Redriving ${count(redriven, 'dead letter')}.`}${left}`, done: redriven > 0 }
  },
  'discard-letters': async (task) => {
    const { discarded, applied } = await discardDeadLetters(lettersOf(task))
    const nothing = applied.length === 0 ? 'No dead letter fits.' : 'Nothing is discarded.'
    const closed =
      applied.length === 0 ? '' : ` Closed, because their events have taken effect: ${count(applied.length, 'dead letter')}.`
    const text = discarded.length === 0 ? nothing : `Discarded ${count(discarded.length, 'dead letter')}.`
    return { text: `${text}${closed}`, done: discarded.length > 0 }
  },
}

/** Does what the page asks for, under the viewer's name. NOT_FOUND for what there is not; INVALID_INPUT for what cannot be meant. */
export async function act(settings: DashboardSettings, actor: string, name: string, given: unknown): Promise<ActionOutcome> {
  const action = Object.hasOwn(actions, name) ? actions[name] : undefined
  if (action === undefined) throw new WaybillError('NOT_FOUND', `There is no action "${name}".`)
  const body = objectOf(given, 'The body')
  return await onService(settings, needed(body, 'service'), ({ db, schema }) =>
    action({ db, schema, actor, reason: reasonOf(body), body }),
  )
}

function streamOf({ db, schema, actor, reason, body }: Task): { readonly action: PauseAction; readonly what: string } {
  const outbox = createOutbox({ schema })
  const aggregateId = text(body, 'aggregateId')
  if (body['all'] === true) {
    if (text(body, 'aggregateType') !== undefined || aggregateId !== undefined)
      throw new WaybillError('INVALID_INPUT', '"all" stands alone: it is every stream.')
    return { action: { db, outbox, all: true, actor, reason }, what: 'everything' }
  }
  const aggregateType = needed(body, 'aggregateType')
  const what = aggregateId === undefined ? `stream ${aggregateType}` : `${aggregateType} ${aggregateId}`
  return { action: { db, outbox, aggregateType, aggregateId, actor, reason }, what }
}

function consumerOf({ db, schema, actor, reason, body }: Task): { readonly action: ConsumerPauseAction; readonly what: string } {
  const consumer = needed(body, 'consumer')
  const type = text(body, 'aggregateType')
  const id = text(body, 'aggregateId')
  if ((type === undefined) !== (id === undefined))
    throw new WaybillError('INVALID_INPUT', 'An aggregate is named by aggregateType and aggregateId together.')
  const aggregate = type === undefined || id === undefined ? undefined : { type, id }
  const what = aggregate === undefined ? `consumer ${consumer}` : `${aggregate.type} ${aggregate.id} of consumer ${consumer}`
  return { action: { db, schema, consumer, aggregate, actor, reason }, what }
}

function parkedOf({ db, schema, actor, reason, body }: Task): ParkedAction {
  return { db, outbox: createOutbox({ schema }), filter: filterOf(body), actor, reason }
}

function lettersOf({ db, schema, actor, reason, body }: Task): DiscardAction {
  return { db, schema, filter: filterOf(body), actor, reason }
}

function parkedText(done: string, { events, refused }: ParkedOutcome): ActionOutcome {
  const left = refused[0] === undefined ? '' : ` Left alone: ${count(refused.length, 'event')}; ${refused[0].reason}.`
  const nothing = refused.length === 0 ? 'No parked event fits.' : 'Nothing was done.'
  const text = events.length === 0 ? nothing : `${done}: ${count(events.length, 'event')}.`
  return { text: `${text}${left}`, done: events.length > 0 }
}

/** The fields are checked by what they are for, which knows them; here only that each is a text, `ids` several, and `all` a yes. */
function filterOf(body: Body): Body {
  const filter = objectOf(body['filter'], 'filter')
  for (const [field, value] of Object.entries(filter)) {
    const isMeant = field === 'all' ? value === true : field === 'ids' ? isTexts(value) : typeof value === 'string'
    if (!isMeant) throw new WaybillError('INVALID_INPUT', `filter.${field} cannot be ${JSON.stringify(value)}.`)
  }
  return filter
}

function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === 'string')
}

function objectOf(value: unknown, what: string): Body {
  if (value !== null && typeof value === 'object' && !Array.isArray(value)) return value as Body
  throw new WaybillError('INVALID_INPUT', `${what} has to be an object.`)
}

function text(body: Body, field: string): string | undefined {
  const value = body[field]
  if (value === undefined || value === '') return undefined
  if (typeof value === 'string') return value
  throw new WaybillError('INVALID_INPUT', `"${field}" has to be a text.`)
}

/** It stands in the history of every letter that it is for. */
function reasonOf(body: Body): string | undefined {
  const reason = text(body, 'reason')
  if (reason === undefined || reason.length <= longestReason) return reason
  throw new WaybillError('INVALID_INPUT', `A reason has ${longestReason} characters at most.`)
}

function needed(body: Body, field: string): string {
  const value = text(body, field)
  if (value !== undefined) return value
  throw new WaybillError('INVALID_INPUT', `"${field}" is missing.`)
}

function count(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? '' : 's'}`
}
