/**
 * A card for each service: what waits in its outbox and who publishes it, how far its consumers are, and what is held or paused.
 * A service that cannot be asked says why; the others go on.
 */
import { actionButton } from './actions.js'
import { button, bytes, count, duration, element, eventLink, hashOf, lines, moment, table } from './elements.js'
import { doctorSays, examine, heldKeys, pauses, publishers } from './parked.js'

export const services = {
  title: () => 'Services',
  draw: ({ services: all }) => [element('div', { class: 'cards', key: 'cards' }, ...all.map(card))],
}

function card({ name, schema, status, findings = [], error }) {
  const state = error !== undefined ? 'away' : findings.length > 0 ? 'violated' : 'ok'
  const head = element(
    'div',
    { class: 'head' },
    element('h3', { class: 'data' }, element('span', { class: 'mark', 'aria-hidden': 'true' }), element('span', { text: name })),
    element('small', { class: 'data', text: `schema ${schema}` }),
  )
  const body = error === undefined ? reportOf(name, status) : [element('p', { class: 'error data', text: error.message })]
  return element('section', { class: `card ${state}`, key: name, 'aria-label': name }, head, ...body)
}

function reportOf(name, { outbox = {}, consumers = [], commands, sizes = {} }) {
  return [
    outboxFigures(name, outbox),
    publishers(outbox),
    pauses(name, outbox),
    heldKeys(outbox),
    ...consumers.map((report) => consumer(name, report)),
    doctorSays(name),
    tools(name, outbox),
    sizesOf(sizes, commands),
  ]
}

function outboxFigures(name, { due, retrying, held, parked, estimated, lagMs, oldestAgeMs, publishDelay, lanes }) {
  const parkedView = parked > 0 ? hashOf(['parked', name]) : undefined
  const late = lanes?.expiring > 0 ? `, ${lanes.expiring} late` : ''
  return figures('Outbox', [
    { name: 'Due', value: count(due, estimated) },
    { name: 'Retrying', value: count(retrying, estimated), isOdd: retrying > 0 },
    { name: 'Held', value: count(held, estimated), isOdd: held > 0 },
    { name: 'Parked', value: count(parked, estimated), isWrong: parked > 0, href: parkedView },
    { name: 'Lag', value: duration(lagMs), title: `The oldest that waits for whatever reason: ${duration(oldestAgeMs)}` },
    delayFigure('Published', publishDelay),
    { name: 'Lanes', value: `${count(lanes?.owned)} of ${count(lanes?.total)}${late}`, isOdd: lanes?.owned < lanes?.total },
  ])
}

function delayFigure(name, { p50Ms, p95Ms, sample, lastMs } = {}) {
  const title = `Of the newest ${count(sample)}; the last ${duration(lastMs)} ago`
  return { name: `${name} p50 / p95`, value: `${duration(p50Ms)} / ${duration(p95Ms)}`, title }
}

function figures(label, list) {
  const items = list.map(({ name, value, title, href, isWrong = false, isOdd = false }) => {
    const shown = href === undefined ? element('span', { text: value }) : element('a', { href, text: value })
    const mood = isWrong ? 'wrong' : isOdd ? 'odd' : undefined
    return element(
      'div',
      { key: name, class: mood, title },
      element('dt', { text: name }),
      element('dd', {}, shown, title === undefined ? undefined : element('span', { class: 'unseen', text: ` ${title}` })),
    )
  })
  return element('dl', { class: 'figures', key: `figures ${label}`, 'aria-label': label }, ...items)
}

function consumer(service, report) {
  const { consumer: name, paused, rebuilding, complete, heldAggregates = [] } = report
  const states = [
    paused == null ? undefined : `paused${paused.by ? ` by ${paused.by}` : ''}`,
    rebuilding ? 'being rebuilt' : undefined,
    complete === false ? 'not complete yet' : undefined,
  ].filter((state) => state !== undefined)
  const badges = states.map((text) => element('span', { class: 'badge data', text }))
  const since = paused?.at ? moment(paused.at) : undefined
  const title = element('h4', { class: 'data', text: name })
  const line = element('div', { class: 'head' }, title, ...badges, since, pauseButton(service, name, paused))
  const held = lines(
    'Held aggregates',
    heldAggregates.map((each) => heldAggregate(service, name, each)),
  )
  return element('section', { class: 'consumer', key: `consumer ${name}` }, line, consumerFigures(service, report), held)
}

function consumerFigures(service, { consumer: name, delay, waiting, stored, deadLetters = [] }) {
  const dead = deadLetters.reduce((sum, each) => sum + each.count, 0)
  const reasons = deadLetters.map(({ reason, count: letters }) => `${reason} ${letters}`).join(', ')
  const view = dead > 0 ? hashOf(['letters', service], { consumer: name }) : undefined
  const inStore = [stored?.due, stored?.retrying, stored?.held]
  const storedFigure = {
    name: 'Stored: due / retrying / held',
    value: inStore.map((value) => count(value, stored?.estimated)).join(' / '),
    title: `Lag ${duration(stored?.lagMs)}`,
  }
  const isWaiting = waiting?.messages > 0
  const waits = `${count(waiting?.messages)}${isWaiting ? ` in ${count(waiting.aggregates)}` : ''}`
  return figures(name, [
    delayFigure('Applied', delay),
    { name: 'Waiting', value: waits, title: 'messages, in so many aggregates' },
    { name: 'The oldest for', value: waiting?.oldestMs > 0 ? duration(waiting.oldestMs) : '–', isOdd: isWaiting },
    { name: 'Dead letters', value: count(dead), isWrong: dead > 0, title: reasons, href: view },
    ...(inStore.some((value) => value > 0) ? [storedFigure] : []),
  ])
}

function pauseButton(service, name, paused) {
  const given = { subject: `consumer ${name}`, body: { service, consumer: name } }
  if (paused != null)
    return actionButton({
      ...given,
      verb: 'Resume',
      action: 'resume-consumer',
      about: 'It takes deliveries again, where it stopped.',
    })
  const fields = [
    { name: 'aggregateType', label: 'Only of this aggregate: type' },
    { name: 'aggregateId', label: 'and id' },
  ]
  const about =
    'It takes no deliveries in any of its processes; the broker keeps them. Of one aggregate they are stored, and the others go on.'
  return actionButton({ ...given, verb: 'Pause', action: 'pause-consumer', fields, about })
}

function heldAggregate(service, name, { aggregateType, aggregateId, version, waiting, paused, heldBy }) {
  const resume = {
    verb: 'Resume',
    subject: `${aggregateType} ${aggregateId} of consumer ${name}`,
    about: 'What was stored is applied in order. A dead letter that nobody has settled still holds it.',
    action: 'resume-consumer',
    body: { service, consumer: name, aggregateType, aggregateId },
  }
  return element(
    'li',
    { key: `${aggregateType}/${aggregateId}` },
    element('span', { class: 'data', text: `${aggregateType} ${aggregateId}` }),
    element('small', { text: `stands at version ${version ?? '?'}, ${count(waiting)} behind it${paused ? ', paused' : ''}` }),
    ...(heldBy == null ? [] : [element('small', { text: 'held by' }), eventLink(heldBy)]),
    paused ? actionButton(resume) : undefined,
  )
}

function tools(service, { dispatching }) {
  const fields = [
    { name: 'aggregateType', label: 'Aggregate type of the stream', required: true },
    { name: 'aggregateId', label: 'Only this aggregate’s id' },
  ]
  const about = 'Its events are recorded as ever and wait. What is under way still goes out.'
  const pause = {
    verb: 'Pause',
    label: 'Pause a stream',
    about,
    fields,
    action: 'pause-stream',
    body: { service },
  }
  const pauseAll = {
    verb: 'Pause',
    label: 'Pause everything',
    about: 'All events of the service are recorded as ever and wait. What is under way still goes out.',
    action: 'pause-stream',
    key: 'pause-all',
    body: { service, all: true },
  }
  const links = [
    element('a', { href: hashOf(['parked', service]), text: 'Parked events' }),
    element('a', { href: hashOf(['letters', service]), text: 'Dead letters' }),
  ]
  const doctor = button({ label: 'Doctor', name: `Doctor of ${service}`, press: () => void examine(service), key: 'doctor' })
  return element(
    'div',
    { class: 'tools', key: 'tools' },
    ...links,
    doctor,
    ...(dispatching === false ? [] : [actionButton(pause), actionButton(pauseAll)]),
  )
}

function sizesOf(sizes, commands) {
  const rows = Object.entries(sizes).map(([name, size]) => {
    const cells = [element('span', { class: 'data', text: name }), element('span', { text: count(size?.rows, true) })]
    return { key: name, cells: [...cells, element('span', { text: bytes(size?.bytes) })] }
  })
  const late = commands?.cleanupLagMs > 0 ? `, clean-up late by ${duration(commands.cleanupLagMs)}` : ''
  const markers = element('p', { class: 'hint', text: `Command markers: ${count(commands?.markers, true)}${late}.` })
  return element(
    'details',
    { key: 'sizes' },
    element('summary', { text: 'Table sizes' }),
    table('Table sizes', ['Table', 'Rows', 'Size'], rows),
    markers,
  )
}
