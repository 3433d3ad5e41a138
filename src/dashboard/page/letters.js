/**
 * The dead letters of a service: by consumer, reason and type, then one by one, then everything that is known of one.
 */
import { actionButton, ask } from './actions.js'
import { aggregateText, bytes, count, element, eventLink, hashOf, longText, moment, several, table } from './elements.js'

/** As many bytes of a body as the server sends. */
const shownBytes = 65_536
const states = ['dead', 'redriving', 'redriven', 'discarded']
const redriveAbout =
  'Applied again in the consumer that failed and nowhere else, under its own event id: an effect that is there already is not repeated. What waits behind follows in order.'
const discardAbout =
  'Given up for good: the effect never happens, also not if the broker delivers the event again while the inbox remembers it. What waited behind goes on without it.'

export const letters = {
  title: ({ parts: [service] }) => `Dead letters of ${service}`,
  load: ({ parts: [service], query: { consumer, reason, type, state } }) =>
    ask('letters', { service, consumer, reason, type, state }),
  // What is settled stays so, and there may be very many.
  isLive: (_answer, { query: { state = 'dead' } }) => state === 'dead' || state === 'redriving',
  draw: ({ groups = [], letters: found = [], more }, { parts: [service], query }) => {
    const { state = 'dead', ...filter } = query
    const isNarrowed = Object.keys(filter).length > 0
    const none = element('p', { class: 'hint', key: 'none', text: `No letter is ${state}.` })
    const rows = groups.map((group) => ({ key: JSON.stringify(nameOf(group)), cells: groupCells(service, state, group) }))
    const list = table('Groups', ['Consumer', 'Reason', 'Type', 'Letters', 'Newest error', 'Actions'], rows)
    const all = element('a', { key: 'all', href: hashOf(['letters', service], { state: query.state }), text: 'All groups' })
    return [
      element(
        'nav',
        { class: 'tools', key: 'states', 'aria-label': 'State' },
        ...states.map((each) => stateLink(service, query, each)),
      ),
      element('section', { class: 'card', key: 'groups' }, isNarrowed ? all : undefined, groups.length === 0 ? none : list),
      ...(isNarrowed && found.length > 0 ? [lettersCard(service, found, more)] : []),
    ]
  },
}

function nameOf({ consumer, reason, eventType }) {
  return [consumer, reason, eventType]
}

function stateLink(service, query, state) {
  const isCurrent = (query.state ?? 'dead') === state
  const href = hashOf(['letters', service], { ...query, state: state === 'dead' ? undefined : state })
  return element('a', { href, text: state, 'aria-current': isCurrent ? 'true' : undefined })
}

function groupCells(service, state, group) {
  const { consumer, reason, eventType, count: size, oldestAt, newestAt, error } = group
  const view = { consumer, reason, type: eventType, state: state === 'dead' ? undefined : state }
  const letterCount = element('div', { class: 'stack' })
  letterCount.append(element('a', { href: hashOf(['letters', service], view), text: several(size, 'letter') }))
  letterCount.append(moment(oldestAt), ...(newestAt === oldestAt ? [] : [moment(newestAt)]))
  return [
    element('span', { class: 'data', text: consumer }),
    element('span', { class: 'data', text: reason }),
    element('span', { class: 'data', text: eventType || '–' }),
    letterCount,
    longText(error),
    // Letters without a type cannot be named together by it; each has its own buttons.
    element('div', { class: 'buttons' }, ...(state === 'dead' && eventType ? groupActions(service, group) : [])),
  ]
}

function groupActions(service, { consumer, reason, eventType, count: size, newestId: upTo }) {
  const subject = `${several(size, 'letter')} of ${consumer}: ${reason}, ${eventType}`
  // What dies while the dialog is open is not among them.
  const given = { subject, body: { service, filter: { consumer, reason, eventType, upTo } } }
  const discard = `${discardAbout} Letters of this group that are being redriven are taken back, too.`
  return [
    actionButton({ ...given, verb: 'Redrive', action: 'redrive-letters', about: redriveAbout }),
    actionButton({ ...given, verb: 'Discard', action: 'discard-letters', about: discard, isDanger: true }),
  ]
}

function lettersCard(service, found, more) {
  const rows = found.map((each) => {
    const { id, eventId, eventType, consumer, reason, error, attempts, holding, deadAt } = each
    const what = element('div', { class: 'stack' }, element('strong', { class: 'data', text: aggregateText(each) }))
    what.append(element('small', { class: 'data', text: `${eventType || '–'}, ${reason} at ${consumer}` }), eventLink(eventId))
    const when = element('div', { class: 'stack' }, moment(deadAt))
    when.append(element('small', { text: several(attempts, 'attempt') }))
    const number = element('a', { href: hashOf(['letter', service, id]), text: id, 'aria-label': `Letter ${id}` })
    const buttons = element('div', { class: 'buttons' }, ...letterActions(service, each))
    return { key: id, cells: [number, what, when, element('span', { text: count(holding) }), longText(error), buttons] }
  })
  const list = table('Letters', ['Letter', 'Event', 'Died', 'Holds', 'Error', 'Actions'], rows)
  const beyond = element('p', { key: 'more', class: 'hint', text: 'There are more; these died first.' })
  return element('section', { class: 'card', key: 'letters' }, list, more ? beyond : undefined)
}

function letterActions(service, { id, state, ...event }) {
  const subject = `letter ${id}: ${aggregateText(event)}`
  const given = { subject, body: { service, filter: { ids: [id] } } }
  const redrive = { ...given, verb: 'Redrive', action: 'redrive-letters', about: redriveAbout }
  const discard = { ...given, verb: 'Discard', action: 'discard-letters', about: discardAbout, isDanger: true }
  if (state === 'dead') return [actionButton(redrive), actionButton(discard)]
  // One that was redriven by mistake is taken back in this way, as long as it is not applied.
  return state === 'redriving' ? [actionButton(discard)] : []
}

export const letter = {
  title: ({ parts: [service, id] }) => `Dead letter ${id} of ${service}`,
  load: ({ parts: [service, id] }) => ask('letter', { service, id }),
  isLive: ({ letter: found }) => found === undefined || found.state === 'dead' || found.state === 'redriving',
  draw: ({ letter: found, plan }, { parts: [service] }) => {
    const { consumer, reason, eventType, error, state } = found
    const group = hashOf(['letters', service], {
      consumer,
      reason,
      type: eventType,
      state: state === 'dead' ? undefined : state,
    })
    const head = element('div', { class: 'head' }, element('h3', { class: 'data', text: aggregateText(found) }))
    head.append(element('span', { class: state === 'dead' ? 'badge wrong' : 'badge', text: state }))
    head.append(element('div', { class: 'buttons' }, ...letterActions(service, found)))
    return [
      element(
        'section',
        { class: 'card', key: 'letter' },
        head,
        plan == null ? undefined : element('p', { key: 'plan', text: `A redrive now: ${plan.because}` }),
        element('pre', { class: 'data', key: 'error', 'aria-label': 'Error', tabindex: 0, text: error || 'No error is known.' }),
        factsOf(found),
        element('p', {}, element('a', { href: group, text: 'Letters like this' })),
      ),
      historyOf(found.history ?? []),
      bodyOf(found),
    ]
  },
}

function factsOf(found) {
  const text = (value) => element('span', { class: 'data', text: value === '' || value == null ? '–' : String(value) })
  const facts = [
    ['Event', eventLink(found.eventId)],
    ['Type', text(found.eventType)],
    ['Consumer', text(`${found.consumer}, generation ${found.generation}`)],
    ['Reason', text(found.reason)],
    ['Attempts', text(`${count(found.attempts)}, redriven ${several(found.redrives, 'time')}`)],
    ['Holds', text(`${count(found.holding)} behind it`)],
    ['Topic', text(found.topic)],
    ['Ordering key', text(found.orderingKey)],
    ['Message', text(found.messageId)],
    ['Published', moment(found.publishedAt)],
    ['First failed', moment(found.firstFailedAt)],
    ['Died', moment(found.deadAt)],
  ]
  return element(
    'dl',
    { class: 'facts', key: 'facts' },
    ...facts.map(([name, value]) => element('div', {}, element('dt', { text: name }), element('dd', {}, value))),
  )
}

function historyOf(history) {
  const items = history.map(({ at, state, ...rest }) => {
    const details = Object.entries(rest).filter(([, value]) => value !== null && value !== '')
    const said = details
      .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
      .join(', ')
    return element('li', {}, moment(at), element('strong', { class: 'data', text: String(state ?? '') }), longText(said))
  })
  return element(
    'section',
    { class: 'card', key: 'history' },
    element('h3', { text: 'History' }),
    element('ol', { class: 'lines' }, ...items),
  )
}

function bodyOf({ bodyBytes, bodyText, attributes }) {
  const hidden = element('p', { class: 'hint', text: 'This dashboard does not show payloads.' })
  const named =
    attributes === undefined
      ? undefined
      : table('Attributes', ['Attribute', 'Value'], Object.entries(attributes).map(attributeRow))
  const shown =
    bodyText === undefined ? hidden : element('pre', { class: 'data', 'aria-label': 'Body', tabindex: 0, text: bodyText })
  const isCut = bodyText !== undefined && bodyBytes > shownBytes
  const cut = isCut ? element('p', { class: 'hint', text: `Cut after ${bytes(shownBytes)}.` }) : undefined
  return element(
    'section',
    { class: 'card', key: 'body' },
    element('h3', { text: bodyBytes === undefined ? 'Body' : `Body, ${bytes(bodyBytes)}` }),
    shown,
    cut,
    named,
  )
}

function attributeRow([name, value]) {
  return { key: name, cells: [element('span', { class: 'data', text: name }), longText(value)] }
}
