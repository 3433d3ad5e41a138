/**
 * Asking the server, and having it do something. Every action goes through one dialog, which says what will be done; afterwards
 * the answer is told, and the page hears that what it shows is `outdated`.
 */
import { button, byId, element, setText } from './elements.js'

const askMs = 20_000
/** A redrive of very many letters takes its time. */
const actMs = 120_000
const toastMs = 12_000

const session = { seal: '', mayAct: false }

/** Who looks, as the newest answer says. */
export function setSession({ viewer, seal }) {
  session.seal = seal
  session.mayAct = viewer?.mayAct === true
}

/**
 * What the server says, or `{ error }` with a sentence; it never throws.
 *
 * @param {string} path
 * @param {Record<string, string | undefined>} [parameters]
 */
export async function ask(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined)
  const query = given.length === 0 ? '' : `?${new URLSearchParams(given)}`
  return await answerOf(`api/${path}${query}`, { signal: AbortSignal.timeout(askMs) })
}

async function answerOf(url, options) {
  let response
  try {
    response = await fetch(url, { cache: 'no-store', redirect: 'manual', ...options })
  } catch {
    return { error: { code: 'NO_ANSWER', message: 'The server does not answer.' } }
  }
  if (response.type === 'opaqueredirect')
    return { error: { code: 'SIGNED_OUT', message: 'You are not signed in any more.', status: 401 } }
  try {
    const answer = await response.json()
    if (response.ok && answer !== null) return answer
    return { error: { message: `The server says ${response.status}.`, ...answer?.error, status: response.status } }
  } catch {
    return { error: { code: 'NOT_JSON', message: 'This is not an answer of the dashboard.', status: response.status } }
  }
}

/**
 * A button for something that changes the system, or nothing for a viewer who may not.
 *
 * `verb` is on the button of the dialog; `about` says what will happen, `subject` what it happens to, if that is not the service: data, which
 * stands by itself. `fields` are asked for in the dialog and become part of the body.
 *
 * @param {{ verb: string, label?: string, subject?: string, about: string, isDanger?: boolean, key?: string,
 *   action: string, body: object, fields?: readonly { name: string, label: string, required?: boolean }[] }} given
 */
export function actionButton(given) {
  const { label = given.verb, subject, isDanger = false, key = given.action } = given
  if (!session.mayAct) return undefined
  return button({
    label,
    name: `${label} ${subject ?? `of ${given.body.service}`}`,
    class: isDanger ? 'danger' : undefined,
    key,
    press: () => openDialog({ ...given, isDanger }),
  })
}

const dialog = byId('action')
const reason = byId('action-reason')
const verbButton = byId('action-verb')
let pending
let isBusy = false

function openDialog(given) {
  if (isBusy) return
  pending = given
  setText(byId('action-title'), given.label ?? given.verb)
  setText(byId('action-service'), given.body.service)
  setText(byId('action-subject'), given.subject ?? '')
  setText(byId('action-about'), given.about)
  setText(byId('action-error'), '')
  setText(verbButton, given.verb)
  verbButton.className = given.isDanger ? 'danger' : 'primary'
  reason.value = ''
  byId('action-fields').replaceChildren(...(given.fields ?? []).map(field))
  dialog.showModal()
  // Enter in haste must not destroy anything.
  const first = given.isDanger ? byId('action-cancel') : (byId('action-fields').querySelector('input') ?? reason)
  first.focus()
}

function field({ name, label, required = false }) {
  const input = element('input', { name, maxlength: 500, autocomplete: 'off', spellcheck: 'false' })
  input.required = required
  return element('label', { class: 'field' }, element('span', { text: label }), input)
}

// What opened it may be gone meanwhile, and the focus with it.
dialog.addEventListener('close', () => {
  if (document.activeElement === document.body) document.querySelector('main h2')?.focus({ preventScroll: true })
})
byId('action-cancel').addEventListener('click', () => dialog.close())
byId('action-form').addEventListener('submit', (event) => {
  event.preventDefault()
  if (!isBusy) void act(pending)
})

async function act({ action, body, fields = [] }) {
  isBusy = true
  verbButton.disabled = true
  const typed = Object.fromEntries(fields.map(({ name }) => [name, dialog.querySelector(`[name=${name}]`).value.trim()]))
  const answer = await post(action, { ...body, ...typed, reason: reason.value.trim() })
  isBusy = false
  verbButton.disabled = false
  if (answer.error === undefined) {
    dialog.close()
    toast(answer.text, answer.done !== false)
  } else if (dialog.open) setText(byId('action-error'), answer.error.message)
  else toast(answer.error.message, false)
  document.dispatchEvent(new Event('outdated'))
}

async function post(action, given) {
  // A field that was left empty does not restrict, and no reason is none.
  const body = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== '' && value !== undefined))
  const answer = await answerOf(`api/actions/${encodeURIComponent(action)}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-waybill-seal': session.seal },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(actMs),
  })
  if (answer.error?.code !== 'NO_ANSWER') return answer
  return { error: { message: 'The server did not answer, so it may have been done or not. Look before you do it again.' } }
}

let toastEnds

/** Tells what was done. It goes by itself, or at once if it is dismissed. */
function toast(text, isDone) {
  const close = () => byId('toast').replaceChildren()
  const told = element('p', { class: isDone ? undefined : 'undone' }, element('span', { class: 'data', text }))
  told.append(button({ label: '×', name: 'Dismiss', press: close }))
  byId('toast').replaceChildren(told)
  clearTimeout(toastEnds)
  toastEnds = setTimeout(close, toastMs)
}
