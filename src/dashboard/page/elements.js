/**
 * Making and changing elements without markup in strings: what comes from the server is text and never becomes anything else.
 *
 * A view is drawn anew with every answer and then laid over what is shown: elements that are the same stay the same, so focus,
 * selection and what somebody opened outlive the refresh. Elements with a key are matched by it and never by their place: a
 * button does not turn into that of another row under somebody's finger.
 */

/** @param {string} id */
export function byId(id) {
  const found = document.getElementById(id)
  if (found === null) throw new Error(`The page has no #${id}.`)
  return found
}

/**
 * `press` is what a click does, `key` names the element among its siblings; everything else is an attribute. What is `undefined`
 * is left out.
 *
 * @param {string} tag
 * @param {{ text?: string, key?: string, press?: () => void, [attribute: string]: any }} [given]
 * @param {...(Node | undefined)} children
 */
export function element(tag, given = {}, ...children) {
  const { text, key, press, ...attributes } = given
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, String(value))
  if (key !== undefined) made.dataset.key = key
  if (press !== undefined) made.onclick = press
  if (text !== undefined) made.textContent = text
  made.append(...children.filter((child) => child !== undefined))
  return made
}

export function button({ label, name, ...given }) {
  return element('button', { type: 'button', text: label, 'aria-label': name, ...given })
}

/** Changes a text only if it is another one, so that nothing is announced or laid out for nothing. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text
}

/** Makes the children of an element those that were drawn. Says whether what had the focus is gone. */
export function update(target, children) {
  const focused = document.activeElement
  const isInside = focused !== target && target.contains(focused)
  const drawn = target.cloneNode(false)
  drawn.append(...children)
  updateChildren(target, drawn)
  if (!isInside || focused === document.activeElement) return false
  // What was moved has lost its focus on the way.
  if (focused.isConnected) focused.focus({ preventScroll: true })
  return !focused.isConnected
}

function updateChildren(target, drawn) {
  const wanted = [...drawn.childNodes]
  const keys = new Set(wanted.map(keyOf))
  for (const child of Array.from(target.childNodes)) if (keyOf(child) !== undefined && !keys.has(keyOf(child))) child.remove()
  const keyed = new Map([...target.childNodes].map((child) => [nameOf(child), child]))
  let place = target.firstChild
  for (const child of wanted) {
    const isSame = place !== null && nameOf(place) === nameOf(child)
    const match = isSame ? place : keyOf(child) === undefined ? undefined : keyed.get(nameOf(child))
    if (isSame) place = place.nextSibling
    else target.insertBefore(match ?? child, place)
    if (match !== undefined) updateNode(match, child)
  }
  while (place !== null) {
    const next = place.nextSibling
    place.remove()
    place = next
  }
}

function updateNode(target, drawn) {
  if (target.nodeType === Node.TEXT_NODE) {
    if (target.data !== drawn.data) target.data = drawn.data
    return
  }
  for (const { name } of Array.from(target.attributes))
    // Whether details are open is for the reader to say.
    if (name !== 'open' && !drawn.hasAttribute(name)) target.removeAttribute(name)
  for (const { name, value } of drawn.attributes) if (target.getAttribute(name) !== value) target.setAttribute(name, value)
  target.onclick = drawn.onclick
  updateChildren(target, drawn)
}

function keyOf(node) {
  return node.dataset?.key
}

function nameOf(node) {
  return `${node.nodeName} ${keyOf(node) ?? ''}`
}

/** The address of a view: `hashOf(['parked', service])`. Parts and parameters may hold anything. */
export function hashOf(parts, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined)
  const query = given.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&')
  return `#/${parts.map(encodeURIComponent).join('/')}${query === '' ? '' : `?${query}`}`
}

/** An event's id, which leads to its trace. */
export function eventLink(id) {
  if (id === null || id === undefined || id === '') return element('span', { text: '–' })
  return element('a', { class: 'id', href: hashOf(['trace', id]), title: id, text: id })
}

/** What an event is of: `video v1, version 2`. Messages that are no events of ours lack all of it. */
export function aggregateText({ aggregateType, aggregateId, version }) {
  if (isAbsent(aggregateType) && isAbsent(aggregateId)) return 'no known aggregate'
  return `${aggregateType ?? '?'} ${aggregateId ?? '?'}${isAbsent(version) ? '' : `, version ${version}`}`
}

/** A text of any length: a long one opens. */
export function longText(text, { key } = {}) {
  const shown = isAbsent(text) ? '–' : String(text)
  if (shown.length <= 200) return element('span', { class: 'data', text: shown, key })
  const summary = element('summary', { class: 'data', text: `${shown.slice(0, 160)} …`, title: shown.slice(0, 2_000) })
  return element('details', { class: 'long', key }, summary, element('p', { class: 'data', text: shown }))
}

/** A list of things that stand in a line each; hidden while there are none. */
export function lines(label, items) {
  return element('ul', { class: 'lines', key: label, 'aria-label': label, hidden: items.length === 0 ? '' : undefined }, ...items)
}

/**
 * @param {string} label
 * @param {readonly string[]} columns
 * @param {readonly { key: string, cells: readonly Node[] }[]} rows
 */
export function table(label, columns, rows) {
  const head = element(
    'tr',
    { role: 'row' },
    ...columns.map((text) => element('th', { role: 'columnheader', scope: 'col', text })),
  )
  const body = rows.map(({ key, cells }) => {
    const shown = cells.map((cell, index) => element('td', { role: 'cell', 'data-label': columns[index] }, cell))
    return element('tr', { role: 'row', key }, ...shown)
  })
  return element(
    'table',
    // Said again, since a table that stands as blocks on a narrow screen would not be one otherwise.
    { role: 'table', 'aria-label': label },
    element('thead', { role: 'rowgroup' }, head),
    element('tbody', { role: 'rowgroup' }, ...body),
  )
}

function isAbsent(value) {
  return value === null || value === undefined || value === ''
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const clock = new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
})

/** A number; one that was not counted but estimated has a tilde. */
export function count(value, isEstimated = false) {
  if (!Number.isFinite(value)) return '–'
  return `${isEstimated === true && value > 0 ? '~' : ''}${whole.format(value)}`
}

/** `1 letter`, `2 letters` */
export function several(value, what) {
  return `${count(value)} ${what}${value === 1 ? '' : 's'}`
}

export function duration(ms) {
  if (!Number.isFinite(ms)) return '–'
  if (ms < 10) return `${ms.toFixed(1)} ms`
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1_000)} s`
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`
  return `${Math.floor(ms / 86_400_000)} d ${Math.floor((ms % 86_400_000) / 3_600_000)} h`
}

/** A moment in the reader's own time; in full, and as it was told, in the title. */
export function moment(at) {
  const ms = Date.parse(at ?? '')
  if (Number.isNaN(ms)) return element('span', { text: isAbsent(at) ? '–' : String(at) })
  return element('time', { datetime: at, title: at, text: clock.format(ms) })
}

export function bytes(value) {
  if (!Number.isFinite(value)) return '–'
  if (value < 1_024) return `${value} B`
  return value < 1_048_576 ? `${Math.ceil(value / 1_024)} KiB` : `${Math.round(value / 1_048_576)} MiB`
}
