/**
 * The page: asks how everything is every two seconds, shows the view that the address names, and says so when nobody answers.
 *
 * It asks nothing while the tab is hidden, and nothing again before an answer has come. A view is asked for together with the
 * overview, if what it shows may change.
 */
import { ask, setSession } from './actions.js'
import { button, byId, element, hashOf, setText, update } from './elements.js'
import { letter, letters } from './letters.js'
import { parked } from './parked.js'
import { services } from './services.js'
import { trace } from './trace.js'

const askEveryMs = 2_000
/** An answer that takes longer is missed. A service that keeps silent takes five seconds by default. */
const patienceMs = 10_000
const views = { '': services, parked, letters, letter, trace }

let overview
let answeredAt = performance.now()
/** When the question was put that has no answer yet; never, while there is none. */
let askedAt = Infinity
let isSilent = false
/** Why there is no overview, if the server says so itself. */
let complaint
let isRefused = false
/** Something was done while an answer was under way, which does not tell of it. */
let isOutdated = false
let timer
/** The view that is shown: what its address says, what was answered, and which question that was the answer to. */
let shown = { route: readRoute(), answer: undefined, turn: 0, isAsking: false }

async function round() {
  clearTimeout(timer)
  if (askedAt !== Infinity || isRefused || document.hidden) return
  isOutdated = false
  askedAt = performance.now()
  void go({ isAgain: false })
  const answer = await ask('overview')
  askedAt = Infinity
  timer = setTimeout(round, isOutdated ? 0 : askEveryMs)
  if (answer.error === undefined) heard(answer)
  else missed(answer.error)
  showVerdict()
  draw()
}

function heard(answer) {
  overview = answer
  answeredAt = performance.now()
  isSilent = false
  complaint = undefined
  setSession(answer)
  const { name, mayAct } = answer.viewer
  setText(byId('viewer'), mayAct ? name : `${name} · read only`)
}

function missed({ status, code, message }) {
  isSilent = true
  isRefused = status === 401 || status === 403 || (code === 'NOT_JSON' && status < 500)
  complaint = code === 'NO_ANSWER' || isRefused ? undefined : message
  if (!isRefused) return
  const again = button({ label: 'Reload', press: () => location.reload(), key: 'reload' })
  const hint = 'Reload the page; you may have to sign in again.'
  const sentence = element('p', { class: 'error', text: message })
  byId('view').replaceChildren(element('section', { class: 'card' }, sentence, element('p', { text: hint }), again))
}

/** Asks for what the view shows, unless that is under way, or is known and cannot have changed. */
async function askForView({ isAgain }) {
  const { route, answer } = shown
  const { load, isLive } = views[route.view]
  if (load === undefined || (shown.isAsking && !isAgain)) return
  if (answer !== undefined && !isAgain && !isLive(answer, route)) return
  const turn = (shown.turn += 1)
  shown.isAsking = true
  const asked = shown
  const found = await load(route)
  if (asked !== shown || turn !== shown.turn) return
  shown.isAsking = false
  // While nobody answers, what is shown stays; the verdict says how old it is.
  if (found.error?.code !== 'NO_ANSWER' || shown.answer === undefined) shown.answer = found
}

function draw() {
  if (isRefused) return
  const { route } = shown
  const view = views[route.view]
  const answer = view.load === undefined ? overview : shown.answer
  const title = element('h2', { tabindex: -1, key: 'title', text: view.title(route) })
  const back = element('a', { class: 'back', href: '#/', key: 'back', text: '← All services' })
  const body = answer === undefined ? asking() : answer.error === undefined ? view.draw(answer, route) : failed(answer.error)
  const isHome = view === services
  title.classList.toggle('unseen', isHome)
  const above = view.above === undefined ? [] : [view.above(route)]
  const hasLostFocus = update(byId('view'), [...(isHome ? [] : [back]), title, ...above, ...body])
  if (hasLostFocus) byId('view').querySelector('h2').focus({ preventScroll: true })
}

function asking() {
  return [element('p', { class: 'hint', key: 'asking', text: 'Asking …' })]
}

function failed({ message }) {
  const again = button({ label: 'Ask again', press: () => document.dispatchEvent(new Event('outdated')), key: 'again' })
  return [element('section', { class: 'card', key: 'error' }, element('p', { class: 'error data', text: message }), again)]
}

function readRoute() {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s)
  try {
    const [view = '', ...parts] = path.split('/').map(decodeURIComponent)
    if (Object.hasOwn(views, view)) return { view, parts, query: Object.fromEntries(new URLSearchParams(query)) }
  } catch {
    // What cannot be read leads home.
  }
  return { view: '', parts: [], query: {} }
}

/** The strip: in few words what is announced, and below it every finding with its changing numbers, which is not. */
function showVerdict() {
  const isLate = isSilent || performance.now() - askedAt > patienceMs
  const told = complaint === undefined ? [] : [element('li', { class: 'data', key: 'complaint', text: complaint })]
  const findings = isRefused ? [] : [...told, ...(overview?.services ?? []).flatMap(findingsOf)]
  const text =
    overview === undefined && !isLate
      ? 'Asking …'
      : isRefused
        ? 'Refused'
        : isLate
          ? 'No answer'
          : findings.length === 0
            ? 'All within limits'
            : `${findings.length} ${findings.length === 1 ? 'finding' : 'findings'}`
  setText(byId('verdict-text'), text)
  byId('verdict').className = `verdict ${isLate || overview === undefined ? '' : findings.length === 0 ? 'ok' : 'violated'}`
  byId('silence').hidden = !isLate || isRefused
  setText(byId('silence'), `since ${Math.round((performance.now() - answeredAt) / 1_000)} s`)
  byId('view').classList.toggle('old', isLate && !isRefused)
  byId('findings').hidden = findings.length === 0
  update(byId('findings'), findings)
  const title = overview !== undefined && (isLate || findings.length > 0) ? `${text} · Waybill` : 'Waybill'
  if (document.title !== title) document.title = title
}

const viewsOfProblems = { parked: 'parked', dead: 'letters' }

function findingsOf({ name, findings = [], error }) {
  if (error !== undefined) return [element('li', { class: 'data', key: `${name} error`, text: `${name}: ${error.message}` })]
  return findings.map(({ problem, text }, index) => {
    const view = viewsOfProblems[problem]
    const said = view === undefined ? element('span', { text }) : element('a', { href: hashOf([view, name]), text })
    return element('li', { class: 'data', key: `${name} ${problem} ${index}` }, said)
  })
}

async function go({ isAgain }) {
  await askForView({ isAgain })
  draw()
}

addEventListener('hashchange', () => {
  shown = { route: readRoute(), answer: undefined, turn: 0, isAsking: false }
  if (isRefused) return
  draw()
  scrollTo(0, 0)
  byId('view').querySelector('h2').focus({ preventScroll: true })
  void go({ isAgain: true })
})
document.addEventListener('visibilitychange', () => void round())
document.addEventListener('changed', draw)
document.addEventListener('outdated', () => {
  isOutdated = true
  void go({ isAgain: true })
  void round()
})
document.addEventListener('keydown', (event) => {
  const isTyping = event.target.closest?.('input, textarea, select, dialog') !== null
  if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return
  event.preventDefault()
  byId('find-id').select()
  byId('find-id').focus()
})
byId('find').addEventListener('submit', (event) => {
  event.preventDefault()
  const id = byId('find-id').value.trim()
  if (id === '') return
  if (location.hash === hashOf(['trace', id])) void go({ isAgain: true })
  else location.hash = hashOf(['trace', id])
})
setInterval(() => document.hidden || showVerdict(), 1_000)
draw()
void round()
