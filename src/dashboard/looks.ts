/**
 * What the page asks for. It only reads, as a role that may only read (`…_readonly`), and says for each service by itself that it
 * cannot be asked: one database that is away does not hide the others.
 *
 * Bodies and attributes of messages leave the process only if the dashboard was made to show them.
 */
import { groupDeadLetters, listDeadLetters, showDeadLetter, type DeadLetterState } from '../consumer/operate/dead-letters.ts'
import { planRedrive } from '../consumer/operate/redrive.ts'
import { WaybillError } from '../core/errors.ts'
import { unlessLate } from '../core/service/abort.ts'
import { doctorConsumers } from '../ops/doctor/consumers.ts'
import { doctorOutbox } from '../ops/doctor/outbox.ts'
import { doctorRoles } from '../ops/doctor/roles.ts'
import { checkStatus, type StatusFinding } from '../ops/status/check.ts'
import { status, type Status } from '../ops/status/status.ts'
import { traceTimeline } from '../ops/trace/timeline.ts'
import { trace } from '../ops/trace/trace.ts'
import { createOutbox } from '../outbox/outbox.ts'
import { listParked } from '../outbox/operate/parked.ts'
import { shownError, type ShownError } from './answers.ts'
import type { DashboardSettings, ShownService } from './dashboard-options.ts'
import { assertOwn, explained, onService } from './on-service.ts'

/** A service at one glance, or why it cannot be seen. */
export type Glance = { readonly name: string; readonly schema: string } & (
  | { readonly status: Status; readonly findings: readonly StatusFinding[] }
  | { readonly error: ShownError }
)

export type Look = (settings: DashboardSettings, asked: URLSearchParams) => Promise<unknown>

const longestList = 100
/** Bytes of a body that are shown. */
const longestBody = 65_536

/** All services, each as far as it answers. */
export async function overview(settings: DashboardSettings): Promise<readonly Glance[]> {
  return await Promise.all(
    settings.services.map(async (service) => {
      const { name, schema } = service
      try {
        const report = await unlessLate(reportOf(service), settings.timeoutMs, settings.clock)
        if (report === undefined) throw new WaybillError('TIMEOUT', `It has not said how it is within ${settings.timeoutMs} ms.`)
        return { name, schema, status: report, findings: checkStatus({ ...report, service: name }, settings.limits) }
      } catch (error) {
        return { name, schema, error: shownError(explained(error, service)) }
      }
    }),
  )
}

async function reportOf(service: ShownService): Promise<Status> {
  await assertOwn(service)
  const { db, schema, markerTtlMs } = service
  return await status({ db, schema, markerTtlMs })
}

/** The rest, by the last word of the address. */
export const looks: Readonly<Record<string, Look>> = {
  parked: ofService(async ({ db, schema }) => {
    const found = await listParked(db, createOutbox({ schema }), { limit: longestList + 1 })
    return { parked: found.slice(0, longestList), more: found.length > longestList }
  }),
  letters: ofService(async ({ db, schema }, asked) => {
    const filter = { consumer: text(asked, 'consumer'), reason: text(asked, 'reason'), eventType: asked.get('type') ?? undefined }
    const state = stateOf(text(asked, 'state') ?? 'dead')
    const letters = await listDeadLetters({ db, schema }, { ...filter, state, limit: longestList + 1 })
    return {
      groups: await groupDeadLetters({ db, schema }, { ...filter, state }),
      letters: letters.slice(0, longestList),
      more: letters.length > longestList,
    }
  }),
  letter: ofService(async ({ db, schema }, asked, { payloads }) => {
    const id = needed(asked, 'id')
    const { body, attributes, ...letter } = await showDeadLetter({ db, schema }, id, { payload: payloads })
    const payload =
      body === undefined
        ? {}
        : { attributes, bodyBytes: body.byteLength, bodyText: Buffer.from(body.subarray(0, longestBody)).toString('utf8') }
    const [planned] = letter.state === 'dead' ? await planRedrive({ db, schema, filter: { ids: [id] } }) : []
    const plan = planned === undefined ? undefined : { verdict: planned.verdict, because: planned.because }
    return { letter: { ...letter, ...payload }, plan }
  }),
  doctor: ofService(async ({ db, schema }) => ({
    findings: [
      ...(await doctorOutbox(db, createOutbox({ schema }))),
      ...(await doctorConsumers(db, schema)),
      ...(await doctorRoles(db, schema)).findings,
    ],
  })),
  trace: async (settings, asked) => {
    const id = needed(asked, 'id')
    const { reached, notes } = await reachable(settings)
    const found = await trace(reached, { id, principal: text(asked, 'principal') })
    return { ...found, notes: [...found.notes, ...notes], timeline: traceTimeline(found) }
  },
}

function ofService(look: (service: ShownService, asked: URLSearchParams, settings: DashboardSettings) => Promise<object>): Look {
  return (settings, asked) => onService(settings, needed(asked, 'service'), (service) => look(service, asked, settings))
}

/** Those that answer; of the others, a note. A journey can be followed as far as they are. */
async function reachable(
  settings: DashboardSettings,
): Promise<{ readonly reached: readonly ShownService[]; readonly notes: readonly string[] }> {
  const asked = await Promise.all(
    settings.services.map(async (service) => {
      try {
        await assertOwn(service)
        return { service, note: undefined }
      } catch (error) {
        return { service, note: `${service.name} was not looked at: ${shownError(explained(error, service)).message}` }
      }
    }),
  )
  const notes = asked.flatMap(({ note }) => note ?? [])
  const reached = asked.filter(({ note }) => note === undefined).map(({ service }) => service)
  if (reached.length === 0) throw new WaybillError('UNAVAILABLE', notes.join(' '))
  return { reached, notes }
}

function text(asked: URLSearchParams, parameter: string): string | undefined {
  const value = asked.get(parameter)
  return value === null || value === '' ? undefined : value
}

function needed(asked: URLSearchParams, parameter: string): string {
  const value = text(asked, parameter)
  if (value !== undefined) return value
  throw new WaybillError('INVALID_INPUT', `The parameter "${parameter}" is missing.`)
}

function stateOf(given: string): DeadLetterState {
  const state = (['dead', 'redriving', 'redriven', 'discarded'] as const).find((each) => each === given)
  if (state !== undefined) return state
  throw new WaybillError('INVALID_INPUT', `state is dead, redriving, redriven or discarded, not "${given}".`)
}
