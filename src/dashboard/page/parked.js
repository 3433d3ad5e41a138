/**
 * What keeps events in the outbox: those that are parked, since the broker refused them until the relay gave up; those that are
 * to be retried; pauses; a relay that is missing; and whatever the doctor finds.
 */
import { actionButton, ask } from './actions.js'
import { aggregateText, count, duration, element, eventLink, lines, longText, moment, several, table } from './elements.js'

export const parked = {
  title: ({ parts: [service] }) => `Parked events of ${service}`,
  load: ({ parts: [service] }) => ask('parked', { service }),
  isLive: () => true,
  draw: ({ parked: events = [], more }, { parts: [service] }) => {
    const none = element('p', { key: 'none', class: 'hint', text: 'No event is parked.' })
    const rows = events.map((event) => ({ key: event.eventId, cells: cellsOf(service, event) }))
    const list = table('Parked events', ['Event', 'Parked', 'Behind it', 'Error', 'Actions'], rows)
    const beyond = element('p', { key: 'more', class: 'hint', text: 'There are more; these are the first.' })
    const shown = events.length === 0 ? [none] : [list, ...(more ? [beyond] : [])]
    return [element('section', { class: 'card', key: 'parked' }, toolsOf(service, events, more), ...shown)]
  },
}

function toolsOf(service, events, more) {
  const all = actionButton({
    verb: 'Redrive all',
    subject: `parked events: ${more ? 'more than ' : ''}${count(events.length)}`,
    about: 'Each is due again at once, with no attempts counted, and what is held behind it follows in order.',
    action: 'redrive-parked',
    body: { service, filter: { all: true } },
  })
  return element('div', { class: 'tools', key: 'tools' }, events.length === 0 ? undefined : all)
}

function cellsOf(service, event) {
  const { eventId, eventType, topic, parkedAt, attempts, held, error } = event
  const subject = aggregateText(event)
  const about = `${eventType ?? 'unknown type'} for ${topic ?? 'an unknown topic'}${event.void === true ? ', as an empty marker' : ''}`
  const what = element('div', { class: 'stack' }, element('strong', { class: 'data', text: subject }))
  what.append(element('small', { class: 'data', text: about }), eventLink(eventId))
  const when = element('div', { class: 'stack' }, moment(parkedAt))
  when.append(element('small', { text: several(attempts, 'attempt') }))
  return [what, when, element('span', { text: count(held) }), longText(error), actionsOf({ service, subject, event })]
}

function actionsOf({ service, subject, event: { eventId, aggregateType } }) {
  const body = { service, filter: { eventId } }
  const redrive = {
    verb: 'Redrive',
    subject,
    about: 'It is due again at once, as itself and with no attempts counted. What is held behind it follows in order.',
    action: 'redrive-parked',
    body,
  }
  const skip = {
    verb: 'Skip',
    subject,
    about:
      'An empty marker is published in its place: readers advance over its version and do nothing, so its effect never happens. What is held behind it follows.',
    isDanger: true,
    action: 'skip-parked',
    body,
  }
  // Of one whose event is missing there is nothing to publish; the command line can drop it.
  const isMissing = aggregateType === null || aggregateType === undefined
  const hint = element('small', { text: 'Its event is missing: see waybill outbox drop.' })
  return element('div', { class: 'buttons' }, ...(isMissing ? [hint] : [actionButton(redrive), actionButton(skip)]))
}

/** Who publishes. */
export function publishers({ dispatching, relays = [] }) {
  if (dispatching === false)
    return element('p', { key: 'connector', class: 'note', text: 'A connector reads the outbox in place of relays.' })
  if (relays.length === 0) return element('p', { key: 'no-relay', class: 'note odd', text: 'No relay is running.' })
  const items = relays.map(({ relay, lanes, seenMs }) => {
    const about = `${several(lanes, 'lane')}, seen ${duration(seenMs)} ago`
    return element(
      'li',
      { key: relay },
      element('span', { class: 'id', title: relay, text: relay }),
      element('small', { text: about }),
    )
  })
  return element('ul', { class: 'relays', key: 'relays', 'aria-label': 'Relays' }, ...items)
}

/** What somebody holds back. */
export function pauses(service, { pauses: all = [] }) {
  const items = all.map(({ aggregateType, aggregateId, pausedBy, pausedAt, reason }) => {
    const isAll = aggregateType == null
    const stream = aggregateId == null ? `stream ${aggregateType}` : `${aggregateType} ${aggregateId}`
    const subject = isAll ? 'everything' : stream
    return element(
      'li',
      { key: subject },
      element('span', { class: 'data', text: `Paused: ${subject}` }),
      element('small', { class: 'data', text: `by ${pausedBy}${reason ? `: ${reason}` : ''}` }),
      moment(pausedAt),
      actionButton({
        verb: 'Resume',
        subject,
        about: 'What has waited is published at once, in order.',
        action: 'resume-stream',
        body: isAll ? { service, all: true } : { service, aggregateType, aggregateId: aggregateId ?? undefined },
      }),
    )
  })
  return lines('Paused', items)
}

/** Events that failed, and stop those behind them. */
export function heldKeys({ heldKeys: keys = [] }) {
  const items = keys.map((key) => {
    const state = key.state === 'PARKED' ? 'parked' : 'to be retried'
    const next =
      key.state === 'PARKED' || key.nextRetryAt == null ? [] : [element('small', { text: 'next' }), moment(key.nextRetryAt)]
    return element(
      'li',
      { key: key.eventId },
      element('span', { class: 'data', text: aggregateText(key) }),
      element('small', { text: `${state} after ${several(key.attempts, 'attempt')}, ${count(key.behind)} behind it` }),
      ...next,
      eventLink(key.eventId),
      longText(key.error),
    )
  })
  return lines('Held keys', items)
}

/** What the doctor said, by service. */
const examined = new Map()

/** Asks what would lose events, reorder them or make them wait. */
export async function examine(service) {
  const tell = (said) => {
    examined.set(service, said)
    document.dispatchEvent(new Event('changed'))
  }
  tell({ note: 'Asking the doctor …' })
  tell({ ...(await ask('doctor', { service })), at: new Date().toISOString() })
}

export function doctorSays(service) {
  const { note, error, findings = [], at } = examined.get(service) ?? {}
  const sentences = note !== undefined ? [note] : error !== undefined ? [error.message] : findings.map(({ text }) => text)
  const isFine = examined.has(service) && sentences.length === 0
  const items = (isFine ? ['The doctor finds nothing wrong.'] : sentences).map((text) => element('li', { class: 'data', text }))
  return element(
    'ul',
    { class: `doctor ${isFine ? 'fine' : ''}`, key: 'doctor', 'aria-live': 'polite', 'aria-label': 'Doctor' },
    ...items,
    at === undefined ? undefined : element('li', {}, element('small', { text: 'asked ' }), moment(at)),
  )
}
