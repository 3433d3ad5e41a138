/**
 * The page: takes a snapshot of the system twice a second and shows it. Buttons ask the server to break something.
 */
import { createChart } from './chart.js'
import { byId, count, duration, element, setText } from './elements.js'
import { createJourney } from './journey.js'

const chart = createChart(byId('chart'))
const journey = createJourney()
const proofs = ['lost', 'doubled', 'outOfOrder', 'stale']
const summaryEveryMs = 10_000
let summarizedAt = 0
let newestHappening = 0
let startedAtMs

const stream = new EventSource('/events')
stream.addEventListener('message', ({ data }) => show(JSON.parse(data)))
stream.addEventListener('error', () => verdict('', 'The demo does not answer; it may have been stopped'))

const rate = byId('rate')
let isRateOwn = false
rate.addEventListener('input', () => {
  isRateOwn = true
  setText(byId('rate-value'), rate.value)
})
rate.addEventListener('change', () => void press(`rate?value=${rate.value}`))

function show(snapshot) {
  const { counts } = snapshot
  // Another demo on the same port is another story.
  if (startedAtMs !== undefined && startedAtMs !== snapshot.startedAtMs) return location.reload()
  startedAtMs = snapshot.startedAtMs
  for (const [name, value] of Object.entries(counts)) setText(byId(name), count(value))
  for (const name of proofs) byId(name).parentElement?.classList.toggle('wrong', counts[name] > 0)
  const isOk = snapshot.verdict === 'ok'
  verdict(snapshot.verdict, isOk ? 'Nothing lost, doubled or reordered' : (snapshot.violations[0] ?? 'Violated'))
  summarize(counts)
  showPath(snapshot)
  showFigures(snapshot)
  showActions(snapshot.actions)
  showTimeline(snapshot.happenings)
  showSurvived(snapshot.survived)
  journey.list(snapshot.events)
  chart.draw(snapshot)
  if (!isRateOwn) {
    rate.value = String(snapshot.rates.target)
    setText(byId('rate-value'), String(snapshot.rates.target))
  }
}

function verdict(state, text) {
  byId('verdict').className = `verdict ${state}`
  setText(byId('verdict-text'), text)
}

/** For those who listen: not every change, which would never end, but how things stand now and then. */
function summarize(counts) {
  if (Date.now() - summarizedAt < summaryEveryMs) return
  summarizedAt = Date.now()
  setText(
    byId('summary'),
    `Committed ${count(counts.committed)}, applied ${count(counts.applied)}, lost ${counts.lost}, doubled ${counts.doubled}, out of order ${counts.outOfOrder}, stale ${counts.stale}.`,
  )
}

function showPath({ processes, sizes, rates }) {
  const up = new Map(processes.map((each) => [each.name, each]))
  const stations = [
    { name: 'Owner', process: up.get('owner') },
    { name: 'Outbox', note: `${count(sizes.backlog)} waiting` },
    { name: 'Relay', process: up.get('relay') },
    { name: 'Broker', process: up.get('broker'), note: 'given' },
    { name: 'Consumer', process: up.get('consumer') },
    { name: 'Projection', note: `${count(rates.perSecond)} a second` },
  ]
  const path = byId('path')
  while (path.children.length < stations.length) path.append(station())
  for (const [index, { name, process, note = '' }] of stations.entries()) {
    const item = path.children[index]
    const restarts = process === undefined || process.restarts === 0 ? '' : `×${process.restarts}`
    item.className = process === undefined ? 'table' : process.isUp ? 'up' : 'down'
    setText(item.querySelector('strong'), name)
    setText(item.querySelector('.times'), restarts)
    setText(item.querySelector('small'), process === undefined ? note : process.isUp ? `pid ${process.pid}` : 'down')
  }
}

function station() {
  const dot = element('span', { class: 'dot' })
  dot.setAttribute('aria-hidden', 'true')
  const times = element('span', { class: 'times' })
  times.title = 'times it was started again'
  return element('li', {}, dot, element('div', {}, element('strong'), times, element('small')))
}

function showFigures({ slices, sizes }) {
  const last = slices.findLast(({ applied }) => applied !== null)
  const figures = [
    ['Published', duration(last?.published?.p50)],
    ['Applied', duration(last?.applied?.p50)],
    ['Applied, 95 %', duration(last?.applied?.p95)],
    ['Under way', count(sizes.underWay)],
    ['In the outbox', count(sizes.backlog)],
    ['Dead letters', count(sizes.deadLetters)],
  ]
  const target = byId('figures')
  while (target.children.length < figures.length) target.append(element('div', {}, element('dt'), element('dd')))
  for (const [index, [name, value]] of figures.entries()) {
    setText(target.children[index].children[0], name)
    setText(target.children[index].children[1], value)
  }
}

function showActions(actions) {
  const target = byId('actions')
  if (target.children.length === 0) {
    target.append(
      ...actions.map(({ name, label, hint, disabled }) => {
        const button = element('button', {}, element('span', { class: 'times' }), element('span', { text: label }))
        button.append(element('small', { text: disabled ?? hint }))
        button.type = 'button'
        button.id = name
        button.disabled = disabled !== undefined
        button.addEventListener('click', () => void press(name))
        return button
      }),
    )
  }
  for (const { name, count: times } of actions) {
    const shown = byId(name).querySelector('.times')
    setText(shown, times === 0 ? '' : `×${times}`)
  }
}

function showTimeline(happenings) {
  const target = byId('timeline')
  for (const { number, atMs, kind, text } of happenings) {
    if (number <= newestHappening) continue
    newestHappening = number
    const time = element('time', { text: new Date(atMs).toLocaleTimeString('en-GB') })
    target.prepend(element('li', { class: kind }, time, element('span', { text })))
  }
  while (target.children.length > 100) target.lastElementChild?.remove()
}

function showSurvived({ duplicates, staleVersions, repeated, replayed, reads, readsByOwner }) {
  setText(
    byId('survived'),
    `Survived so far: ${count(duplicates)} duplicates in the broker, ${count(staleVersions)} stale versions, ${count(repeated)} requests sent again, ${count(replayed)} repeats recognised. Of ${count(reads)} reads with a token the owner answered ${count(readsByOwner)}.`,
  )
}

async function press(action) {
  await fetch(`/actions/${action}`, { method: 'POST' }).catch(() => {})
}
