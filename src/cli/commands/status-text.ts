/** A service's status for people: what matters first, a line for each thing, nothing for what is not there. */
import { deadOf, type StatusFinding } from '../../ops/status/check.ts'
import type { ConsumerReport, OutboxReport, RecentDelays, Status } from '../../ops/status/status.ts'
import { pauseSubject } from '../../outbox/operate/pause.ts'
import { oneLine, textDuration } from '../frame/text-table.ts'

/** The lines of a status and of what is wrong with it. */
export function statusText(status: Status, findings: readonly StatusFinding[] | undefined): string {
  const { service, schema, at, outbox, consumers, commands } = status
  return [
    `${service}, schema ${schema}, at ${at}`,
    ...outboxLines(outbox),
    ...consumers.flatMap(consumerLines),
    commands.markers === 0
      ? undefined
      : `Commands   about ${round(commands.markers)} markers; clean-up ${commands.cleanupLagMs === 0 ? 'on time' : `late by ${textDuration(commands.cleanupLagMs)}`}`,
    sizesLine(status),
    ...verdict(findings),
  ]
    .filter((line) => line !== undefined)
    .map(oneLine)
    .join('\n')
}

function verdict(findings: readonly StatusFinding[] | undefined): string[] {
  if (findings === undefined) return []
  return findings.length === 0 ? ['Check      all within their limits'] : findings.map(({ text }) => `Check      ${text}`)
}

function outboxLines(outbox: OutboxReport): (string | undefined)[] {
  const { due, retrying, held, parked, estimated, oldestAgeMs, lanes, relays } = outbox
  const waiting = due + retrying + held + parked
  const age = waiting === 0 ? '' : `, the oldest for ${textDuration(oldestAgeMs)}`
  const about = estimated ? 'about ' : ''
  const late = lanes.expiring === 0 ? '' : `, ${lanes.expiring} renewed late`
  const names = relays.map(({ relay, lanes: count }) => `${relay} (${count})`).join(', ')
  return [
    `Outbox     ${about}${round(waiting)} events wait${age}: ${round(due)} due, ${round(retrying)} to be retried, ${round(held)} held, ${round(parked)} parked`,
    delayLine('published', outbox.publishDelay),
    outbox.dispatching ? undefined : 'Connector  reads the outbox: no dispatch rows are written',
    `Lanes      ${lanes.owned} of ${lanes.total} leased${late}; ${relays.length === 0 ? 'no relay is running' : `relays: ${names}`}`,
    ...outbox.heldKeys.map(
      (key) =>
        `Held       ${key.aggregateType ?? '?'} ${key.aggregateId ?? key.eventId} version ${key.version ?? '?'}: ${key.state === 'PARKED' ? 'parked' : 'to be retried'} after ${key.attempts} attempts, ${key.behind} behind it: ${key.error ?? ''}`,
    ),
    ...outbox.pauses.map(
      (pause) =>
        `Paused     ${pauseSubject(pause)}, by ${pause.pausedBy} at ${pause.pausedAt}${pause.reason === '' ? '' : `: ${pause.reason}`}`,
    ),
  ]
}

function delayLine(what: string, { sample, p50Ms, p95Ms, lastMs }: RecentDelays): string | undefined {
  if (lastMs === undefined) return undefined
  const last = `the last ${textDuration(lastMs)} ago`
  if (sample === 0 || p50Ms === undefined || p95Ms === undefined) return `           ${what}: ${last}`
  return `           ${what} after ${textDuration(p50Ms)} (p50), ${textDuration(p95Ms)} (p95); ${last}`
}

function consumerLines(report: ConsumerReport): (string | undefined)[] {
  const { consumer, paused, rebuilding, complete, waiting, stored, instances, atRest, deadLetters, refused, heldAggregates } =
    report
  const state = [
    paused === undefined ? undefined : `paused by ${paused.by} at ${paused.at}`,
    rebuilding ? 'being rebuilt' : undefined,
    complete ? undefined : 'not complete yet',
    instances.versions < 2 ? undefined : `mixed versions: ${instances.running} instances of ${instances.versions}`,
  ].filter((part) => part !== undefined)
  const inStore = stored.due + stored.retrying + stored.held
  const listed = (them: ConsumerReport['refused']): string => them.map(({ reason, count }) => `${reason} ${count}`).join(', ')
  return [
    `Consumer   ${consumer}${state.length === 0 ? '' : `: ${state.join(', ')}`}`,
    delayLine('applied', report.delay),
    inStore === 0
      ? undefined
      : `           ${stored.estimated ? 'at least ' : ''}${round(inStore)} stored: ${stored.due} due, ${stored.retrying} to be retried, ${stored.held} held`,
    waiting.messages === 0
      ? undefined
      : `           ${waiting.messages} messages of ${waiting.aggregates} aggregates wait for their turn${waiting.oldestMs === 0 ? '' : `, the oldest for ${textDuration(waiting.oldestMs)}`}`,
    ...atRest.map(
      ({ aggregateType, eventType, messages }) =>
        `           ${messages} of ${aggregateType} ${eventType} were put aside, and no running instance reads it`,
    ),
    deadOf(report) === 0 ? undefined : `           ${deadOf(report)} dead letters: ${listed(deadLetters)}`,
    refused.length === 0 ? undefined : `           refused messages that are kept: ${listed(refused)}`,
    ...heldAggregates.map(
      ({ aggregateType, aggregateId, version, waiting: behind, paused: isPaused, heldBy }) =>
        `           ${aggregateType} ${aggregateId} stands at version ${version}, ${behind} behind it${isPaused ? ', paused' : ''}${heldBy === undefined ? '' : `, held by ${heldBy}`}`,
    ),
  ]
}

function sizesLine({ sizes }: Status): string | undefined {
  const large = Object.entries(sizes).filter(([, { rows }]) => rows > 0)
  if (large.length === 0) return undefined
  return `Tables     ${large.map(([table, { rows, bytes }]) => `${table} ${round(rows)} (${megabytes(bytes)})`).join(', ')}`
}

function megabytes(bytes: number): string {
  return bytes < 1_048_576 ? `${Math.ceil(bytes / 1_024)} KiB` : `${Math.round(bytes / 1_048_576)} MiB`
}

function round(count: number): string {
  return String(Math.round(count))
}
