/**
 * The journey of an event or a request, over all services. It is asked for once and when somebody wants it again: a request that
 * nobody knows is looked for through all markers, which is no question for every two seconds.
 */
import { ask } from './actions.js'
import { button, duration, element, eventLink, hashOf, moment } from './elements.js'

export const trace = {
  title: () => 'Trace',
  load: ({ parts: [id], query: { principal } }) => ask('trace', { id, principal }),
  isLive: () => false,
  above: principalForm,
  draw: (found, { parts: [id] }) => {
    const { events = [], timeline = [], notes = [] } = found
    const known = new Set(
      events.flatMap(({ eventId, causedBy }) => [eventId, causedBy?.eventId]).filter((each) => each !== undefined),
    )
    const again = button({ label: 'Look again', press: () => document.dispatchEvent(new Event('outdated')), key: 'again' })
    const head = element('div', { class: 'head' }, element('code', { class: 'data', text: id }), again)
    return [
      element(
        'section',
        { class: 'card', key: 'trace' },
        head,
        timelineOf(timeline, known),
        lettersOf(events),
        element(
          'ul',
          { class: 'notes', key: 'notes', 'aria-label': 'Notes' },
          ...notes.map((text) => element('li', { class: 'data', text })),
        ),
      ),
    ]
  },
}

/** A request id means something only together with whose it is; without that, all markers are looked through. */
function principalForm({ parts: [id], query: { principal = '' } }) {
  const input = element('input', {
    'aria-label': 'Principal of a request id',
    placeholder: 'Principal, for a request id',
    value: principal,
  })
  const submit = element('button', { type: 'submit', text: 'Look' })
  const form = element('form', { class: 'find', key: `principal ${id}` }, input, submit)
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    location.hash = hashOf(['trace', id], { principal: input.value.trim() || undefined })
  })
  return form
}

function timelineOf(timeline, known) {
  const first = timeline.find(({ at }) => at != null)?.at
  const start = element('p', { class: 'hint', key: 'start' }, element('span', { text: 'First moment: ' }), moment(first))
  const items = timeline.map(({ at, service, text }) => {
    const after = at == null ? '' : `+${duration((microseconds(at) - microseconds(first)) / 1_000)}`
    return element(
      'li',
      { class: at == null ? undefined : 'done' },
      element('span', { class: 'after', text: after, title: at ?? 'as it is now' }),
      element('span', { class: 'where data', text: service === '' ? '–' : service }),
      element('span', { class: 'data' }, ...withLinks(String(text ?? ''), known)),
    )
  })
  return element('div', { key: 'timeline' }, start, element('ol', { class: 'journey', 'aria-label': 'Timeline' }, ...items))
}

/** The moments of Postgres are finer than those of a Date. */
function microseconds(at) {
  const [, seconds, fraction] = /^(.*?)(\.\d+)?Z$/.exec(at) ?? []
  return seconds === undefined
    ? Date.parse(at) * 1_000
    : Date.parse(`${seconds}Z`) * 1_000 + Number(`0${fraction ?? ''}`) * 1_000_000
}

const uuid = /([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/

/** The text, in which the ids of these events lead to their traces. */
function withLinks(text, known) {
  return text.split(uuid).map((part) => (known.has(part) ? eventLink(part) : document.createTextNode(part)))
}

function lettersOf(events) {
  const found = events.flatMap(({ deliveries = [] }) => deliveries).filter(({ deadLetter }) => deadLetter != null)
  const items = found.map(({ service, consumer, deadLetter: { id, reason } }) => {
    const href = hashOf(['letter', service, id])
    return element(
      'li',
      { key: `${service} ${id}` },
      element('a', { href, text: `Dead letter ${id} of ${consumer} (${reason})` }),
    )
  })
  return element('ul', { class: 'notes', key: 'letters', 'aria-label': 'Dead letters' }, ...items)
}
